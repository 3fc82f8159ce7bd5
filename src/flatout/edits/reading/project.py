"""The files that a training consists of: the script, and what it imports from its own folder."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from flatout.edits.reading.source_file import Function, SourceFile, read_source
from flatout.errors import UsageError

__all__ = ["Project", "read_project"]

_MOST_FILES = 200
_FOREIGN = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Project:
    """The user's sources, the script first; `notes`: files that were passed over, and why."""

    sources: tuple[SourceFile, ...]
    notes: tuple[str, ...] = ()

    @property
    def script(self) -> SourceFile:
        """The file that is started."""
        return self.sources[0]

    @cached_property
    def functions(self) -> Mapping[str, list[tuple[SourceFile, Function]]]:
        """The user's functions and methods by name, whatever module or class they stand in."""
        found: dict[str, list[tuple[SourceFile, Function]]] = {}
        for source, node in self.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
            found.setdefault(node.name, []).append((source, node))
        return found

    @cached_property
    def classes(self) -> Mapping[str, list[tuple[SourceFile, ast.ClassDef]]]:
        """The user's classes by name."""
        found: dict[str, list[tuple[SourceFile, ast.ClassDef]]] = {}
        for source, node in self.nodes(ast.ClassDef):
            found.setdefault(node.name, []).append((source, node))
        return found

    @cached_property
    def mentions(self) -> str:
        """The code of all files, without comments, for looking up names."""
        return "\n".join(ast.unparse(source.tree) for source in self.sources)

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[tuple[SourceFile, Any]]:
        """Yield every node of these kinds with its file, in the order of the text."""
        for source in self.sources:
            for node in ast.walk(source.tree):
                if isinstance(node, kinds):
                    yield source, node

    def calls(self, *names: str) -> list[tuple[SourceFile, ast.Call]]:
        """Return the calls of what these dotted names stand for, in the order of the text."""
        found = [(source, node) for source, node in self.nodes(ast.Call) if source.names.dotted(node.func) in names]
        order = {source.path: number for number, source in enumerate(self.sources)}
        return sorted(found, key=lambda each: (order[each[0].path], each[1].lineno, each[1].col_offset))

    def with_code(self, path: Path, code: bytes) -> "Project":
        """Return the project with another content of one file."""
        sources = tuple(replace(each, code=code) if each.path == path else each for each in self.sources)
        return replace(self, sources=sources)


def read_project(script: Path, root: Path, here: Path, *, most_files: int = _MOST_FILES) -> Project:
    """Read `script` and the modules below `root` that it imports, directly or not; `here` is where names start.

    No more than `most_files` are read; a note says where there are more.

    Raises:
        UsageError: the script cannot be read, or is not Python.
    """
    root = root.resolve()
    try:
        first = read_source(script.resolve(), _shown(script.resolve(), here), _package(script.resolve(), root))
    except OSError as error:
        raise UsageError(f"{script} cannot be read ({error.strerror}).") from None
    except SyntaxError as error:
        raise UsageError(f"{script} cannot be edited: {error}.") from None
    sources, notes = {first.path: first}, list[str]()
    for source in (queue := [first]):  # grows while it is read
        for path in _imported_files(source, root):
            if path in sources:
                continue
            if len(sources) >= most_files:
                return Project(tuple(sources.values()), (*notes, f"only the first {most_files} files are read"))
            shown = _shown(path, here)
            try:
                sources[path] = read_source(path, shown, _package(path, root))
            except (OSError, SyntaxError) as error:
                notes.append(f"{shown} is skipped: {error}")
                continue
            queue.append(sources[path])
    return Project(tuple(sources.values()), tuple(notes))


def _imported_files(source: SourceFile, root: Path) -> Iterator[Path]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = source.package.split(".") if source.package else []
            start = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}" if base else alias.name for alias in node.names)]
        else:
            continue
        for name in names:
            yield from _files(name, root)


def _files(dotted: str, root: Path) -> Iterator[Path]:
    """Yield the file of a module below `root`; links that lead out of it, and installed packages, are not ours."""
    if not dotted:
        return
    place = root.joinpath(*dotted.split("."))
    for path in (place.with_name(place.name + ".py"), place / "__init__.py"):
        if path.is_file():
            real = path.resolve()
            inside = real.is_relative_to(root) and not set(real.parts) & set(_FOREIGN)
            if inside and not any((folder / "pyvenv.cfg").is_file() for folder in _between(real, root)):
                yield real


def _between(path: Path, root: Path) -> Iterator[Path]:
    yield from (folder for folder in path.parents if folder.is_relative_to(root) and folder != root)


def _package(path: Path, root: Path) -> str:
    return ".".join(path.parent.relative_to(root).parts) if path.is_relative_to(root) else ""


def _shown(path: Path, here: Path) -> str:
    here = here.resolve()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.as_posix().lstrip("/")
