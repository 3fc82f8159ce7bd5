"""Python's import system, asked for edited files: their edited text is compiled in place of what they hold.

Three documented extension points are enough, so that nothing of Python is replaced. Imported modules, and what `-m`
names, come through a finder in `sys.meta_path`. A script that is started by its path, and everything that goes through
`runpy.run_path` (the main module of spawned workers), comes through a hook in `sys.path_hooks`: Python asks whether a
path is a place that modules come from, as a folder or a zip file is, before it runs it as a file. The edited script
then runs in the real `__main__` module. Compiled files (`.pyc`) are neither read nor written for edited text.

Whatever fails here, the file runs as it is.
"""

import ast
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from flatout.fixes.source.served_files import ServedFiles
from flatout.fixes.source.shown_lines import remember_lines, show_edited_lines
from flatout.schema.order import EditedFile

__all__ = ["EditedLoader", "serve"]

_AS_SCRIPT = ("__spec__", "__package__", "__cached__")
_BY_RUN_PATH = ("__spec__", "__loader__", "__cached__")
"""Names that are None in a file that Python runs by its path, and that `runpy` sets for a file of an importer."""


def serve(files: ServedFiles) -> None:
    """Serve the edited text of `files` to everything that this process imports or runs from now on."""
    finder = _Finder(files)
    sys.meta_path.insert(0, finder)
    sys.path_hooks.insert(0, finder.claim)


class EditedLoader(SourceFileLoader):
    """Loads one module from the edited text of its file.

    `blank`: names of the module that are None before its first statement.
    """

    def __init__(self, name: str, path: str, file: EditedFile, files: ServedFiles, blank: tuple[str, ...] = ()) -> None:
        """Load `file` under that name, from the path as people write it."""
        super().__init__(name, path)
        self._file = file
        self._files = files
        self._blank = blank
        self._in_path: tuple[object, str | None] | None = None

    def takes_place_of(self, entry: object, folder: str | None) -> None:
        """Put `folder` where `entry` begins `sys.path`, or nothing, once the code is asked for."""
        self._in_path = (entry, folder)

    def get_data(self, path: str) -> bytes:
        """Return the edited text, and the bytes of any other file."""
        return self._file.text.encode() if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the edited text; that of the file itself where it cannot be compiled."""
        self._restore_path()
        try:
            code = _compiled(self.get_data(self.path), self.path, self._blank)
            remember_lines(self._file, self.path)
            show_edited_lines()
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            self._files.leave(self._file, f"its text cannot be run ({said})")
            with open(self.path, "rb") as file:
                return _compiled(file.read(), self.path, self._blank)
        self._files.serve(self._file)
        return code

    def _restore_path(self) -> None:
        if self._in_path is None:
            return
        (entry, folder), self._in_path = self._in_path, None
        if sys.path and sys.path[0] == entry:
            sys.path[:1] = [] if folder is None else [folder]
        sys.path_importer_cache.pop(self.path, None)


def _compiled(text: bytes, path: str, blank: tuple[str, ...]) -> CodeType:
    """Return the code of a file in which the names `blank` are None before the first statement."""
    if not blank:
        code: CodeType = compile(text, path, "exec", dont_inherit=True)
        return code
    tree = ast.parse(text, path)
    at = _first_statement(tree.body)
    names: list[ast.expr] = [ast.Name(name, ast.Store()) for name in blank]
    line = ast.Assign(targets=names, value=ast.Constant(None), lineno=1, col_offset=0)
    if at < len(tree.body):  # on the line of the first statement, so that no line is added for those who count them
        ast.copy_location(line, tree.body[at])
    tree.body.insert(at, ast.fix_missing_locations(line))
    made: CodeType = compile(tree, path, "exec", dont_inherit=True)
    return made


def _first_statement(body: Sequence[ast.stmt]) -> int:
    """Return the number of the first statement behind the docstring and imports from `__future__`."""
    for at, node in enumerate(body):
        value = node.value if at == 0 and isinstance(node, ast.Expr) else None
        docstring = isinstance(value, ast.Constant) and isinstance(value.value, str)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__" and not node.level
        if not docstring and not future:
            return at
    return len(body)


class _Finder(MetaPathFinder):
    """Finds modules as ever, and hands back those of edited files with a loader of ours."""

    def __init__(self, files: ServedFiles) -> None:
        self._files = files
        self._names = files.module_names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module whose file is edited, None for all others."""
        if name == "__main__" and (script := self._named_by_path()) is not None:
            return script
        if name.rpartition(".")[2] not in self._names:
            return None
        spec = self._by_others(name, path, target)
        origin = getattr(spec, "origin", None)
        file = self._files.find(origin) if isinstance(origin, str) else None
        if spec is None or file is None:
            return None
        if type(spec.loader) is not SourceFileLoader:
            self._files.leave(file, f"{name} is imported by a loader of another kind, {type(spec.loader).__name__}")
            return None
        spec.loader = EditedLoader(spec.name, str(origin), file, self._files)
        return spec

    def _by_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        """Return what this module would be without us."""
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _named_by_path(self) -> ModuleSpec | None:
        """Return the spec of the file that begins `sys.path` in a form that Python itself passes over: a `Path`."""
        entry: Any = sys.path[0] if sys.path else ""
        if isinstance(entry, str) or not isinstance(entry, os.PathLike | bytes):
            return None
        importer = _ScriptImporter(self._files, os.fsdecode(entry), at_start=False)
        return importer.find_spec("__main__", entry=entry) if self._files.find(os.fsdecode(entry)) else None

    def claim(self, path: str) -> "_ScriptImporter":
        """Return what runs the edited file `path`.

        Raises:
            ImportError: it is none of ours; Python asks the next hook.
        """
        if not isinstance(path, str) or self._files.find(path) is None:
            raise ImportError(f"{path!r} is not edited")
        return _ScriptImporter(self._files, path, at_start=_called_by_the_interpreter())


class _ScriptImporter:
    """The place that one edited script comes from: a folder with nothing in it but `__main__`."""

    def __init__(self, files: ServedFiles, path: str, *, at_start: bool) -> None:
        self._files = files
        self._path = path
        self._at_start = at_start

    def find_spec(self, name: str, target: ModuleType | None = None, entry: object = None) -> ModuleSpec | None:
        """Return the spec of the script, None for any other module."""
        file = self._files.find(self._path)
        if name != "__main__" or file is None:
            return None
        at_start, self._at_start = self._at_start, False  # what was found once may be run again, by `runpy`
        blank = _AS_SCRIPT if at_start else _BY_RUN_PATH
        loader = EditedLoader("__main__", self._path, file, self._files, blank)
        with_folder = at_start and not getattr(sys.flags, "safe_path", False)
        folder = os.path.dirname(os.path.realpath(self._path)) if with_folder else None
        loader.takes_place_of(self._path if entry is None else entry, folder)
        spec = ModuleSpec("__main__", loader, origin=self._path)
        spec.has_location = True
        return spec

    def invalidate_caches(self) -> None:
        """Keep nothing, so that there is nothing to forget."""


def _called_by_the_interpreter() -> bool:
    """Return whether no Python code runs above the hook: then the interpreter asks for the script that it starts."""
    try:
        sys._getframe(2)
    except ValueError:
        return True
    return False
