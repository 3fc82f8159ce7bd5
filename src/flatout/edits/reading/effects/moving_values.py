"""Values that a look changes: iterators, loaders, data sets that draw, dictionaries that fill themselves.

They are followed by name, through assignments, arguments, attributes and returns of the whole project: a name that
stands for such a value anywhere counts everywhere.
"""

import ast
from collections.abc import Container, Iterator

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.effects.pure_calls import is_pure_builtin, is_pure_function, words
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["moving_names"]

_BUILTINS = frozenset({"iter", "map", "filter", "zip", "enumerate", "reversed", "open"})
_METHODS = words(
    "map parameters named_parameters buffers named_buffers modules named_modules children named_children finditer glob "
    "rglob iterdir iglob scandir imap imap_unordered iterrows itertuples as_completed iter_batches __iter__"
)
_LIBRARIES = words(  # whose functions return no iterators, but for those in _MAKERS
    "torch numpy scipy sklearn math cmath json os pathlib time datetime random copy argparse types typing collections "
    "statistics functools operator dataclasses logging pickle pandas PIL cv2 yaml timm torchvision torchaudio "
    "transformers glob re string sys"
)
_MAKERS = ("os.scandir", "os.walk", "os.fwalk", "glob.iglob", "re.finditer", "numpy.nditer", "numpy.ndenumerate")
_NAMES = frozenset({"DataLoader", "defaultdict", "StatefulDataLoader", "WebLoader"})
_KEEP = frozenset({"append", "add", "insert", "appendleft", "setdefault", "extend", "update"})
_SHOWN = ast.List | ast.Tuple | ast.Set | ast.Dict | ast.ListComp | ast.SetComp | ast.DictComp


def moving_names(project: Project, classes: Container[str]) -> frozenset[str]:
    """Return the names of variables, attributes and functions that may stand for a value that a look changes.

    Args:
        project: the user's sources.
        classes: those of the user's classes that do more than to compute where an operator is applied to them.
    """
    search = _Search(project, classes)
    size = -1
    while size != len(search.names) + len(search.holders):
        size = len(search.names) + len(search.holders)
        for source in project.sources:
            search.read(source)
    return frozenset(search.names)


class _Search:
    def __init__(self, project: Project, classes: Container[str]) -> None:
        self.project, self.classes = project, classes
        self.names: set[str] = set()
        self.holders: set[str] = set()  # containers of such values
        self._generators = {
            name
            for name, known in project.functions.items()
            if any(
                isinstance(node, ast.Yield | ast.YieldFrom) and place.scope(node) is function
                for place, function in known
                for node in ast.walk(function)
            )
        }

    def read(self, source: SourceFile) -> None:
        """Add the names that one more round through a file finds."""
        for node in ast.walk(source.tree):
            for target, value in pairs(node):
                self._bind(source, target, value)
            if isinstance(node, ast.AugAssign):
                self._bind(source, node.target, node.value)
            elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and self._holds(source, node.iter):
                self._add(node.target)
            elif isinstance(node, ast.withitem) and node.optional_vars is not None:
                self._bind(source, node.optional_vars, node.context_expr)
            elif isinstance(node, ast.Return) and node.value is not None and self._moves(source, node.value):
                scope = source.scope(node)
                self.names |= {scope.name} if isinstance(scope, Function) else set()
            elif isinstance(node, ast.Call):
                self._pass_on(source, node)
            elif isinstance(node, ast.arguments):
                self._take_defaults(source, node)

    def _take_defaults(self, source: SourceFile, given: ast.arguments) -> None:
        names = [*given.posonlyargs, *given.args]
        named = [*zip(reversed(names), reversed(given.defaults), strict=False)]
        for each, value in (*named, *zip(given.kwonlyargs, given.kw_defaults, strict=True)):
            if value is not None and self._moves(source, value):
                self.names.add(each.arg)

    def _bind(self, source: SourceFile, target: ast.expr, value: ast.expr) -> None:
        if self._moves(source, value):
            self._add(target)
            if isinstance(value, _SHOWN) or (isinstance(value, ast.Name) and value.id in self.holders):
                self._add(target, holds=True)

    def _add(self, target: ast.expr, *, holds: bool = False) -> None:
        while isinstance(target, ast.Subscript | ast.Starred):
            holds, target = True, target.value
        found = {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
        found = {target.attr} if isinstance(target, ast.Attribute) else found
        self.names |= found
        self.holders |= found if holds else set()

    def _pass_on(self, source: SourceFile, call: ast.Call) -> None:
        """Follow what a call is given into the functions that it may call."""
        name = _identifier(call.func)
        is_given = any(self._moves(source, each) for each in call.args)
        if is_given and isinstance(call.func, ast.Attribute) and name in _KEEP:
            self._add(call.func.value, holds=True)
        known = [each for _, each in self.project.functions.get(name, ())]
        if name in self.project.classes:
            known += [each for _, each in self.project.functions.get("__init__", ())]
            if is_given:
                self.names |= {field for _, made in self.project.classes[name] for field in _fields(made)}
        for function in known:
            given = function.args
            names = [each.arg for each in (*given.posonlyargs, *given.args)]
            shift = 1 if names[:1] in (["self"], ["cls"]) else 0
            for at, value in enumerate(call.args):
                if self._moves(source, value):
                    self.names |= {*names[at + shift : at + shift + 1]}
                    self.names |= {given.vararg.arg} if given.vararg is not None else set()
            self.names |= {each.arg for each in call.keywords if each.arg and self._moves(source, each.value)}

    # -- expressions --------------------------------------------------------------------------------------------

    def _holds(self, source: SourceFile, node: ast.expr) -> bool:
        if isinstance(node, _SHOWN):
            return self._moves(source, node)
        if isinstance(node, ast.Call) and source.names.dotted(node.func) in ("itertools.groupby", "itertools.tee"):
            return True
        parts = node.args if isinstance(node, ast.Call) else [node]
        return any(_identifier(each) in self.holders for each in parts)

    def _moves(self, source: SourceFile, node: ast.expr) -> bool:
        return any(self._moving(source, node))

    def _moving(self, source: SourceFile, node: ast.AST) -> Iterator[bool]:
        if isinstance(node, ast.Name | ast.Attribute):
            yield _identifier(node) in self.names
        elif isinstance(node, ast.GeneratorExp):
            yield True
        elif isinstance(node, ast.Call):
            yield from self._of_call(source, node)
        elif isinstance(node, ast.Lambda):
            yield from self._moving(source, node.body)
        elif not isinstance(node, ast.Compare):
            for child in ast.iter_child_nodes(node):
                yield from self._moving(source, child)

    def _of_call(self, source: SourceFile, call: ast.Call) -> Iterator[bool]:
        name, dotted = _identifier(call.func), source.names.dotted(call.func)
        is_plain_name = isinstance(call.func, ast.Name)
        yield name in _NAMES or name in self.classes or name in self._generators or name in self.names
        yield bool(dotted) and not self._is_plain(dotted)
        yield (name in _BUILTINS) if is_plain_name else (name in _METHODS)
        if is_pure_function(dotted) or (is_plain_name and (is_pure_builtin(name) or name == "next")):
            return  # its result has been computed
        for each in (*call.args, *(keyword.value for keyword in call.keywords)):
            yield from self._moving(source, each)

    def _is_plain(self, dotted: str) -> bool:
        """Return whether what an import stands for returns no iterator, as far as is known; ours are read."""
        if is_pure_function(dotted):
            return not dotted.startswith("itertools.")
        root, _, name = dotted.rpartition(".")
        is_ours = name in self.project.functions or name in self.project.classes
        return is_ours or (root.partition(".")[0] in _LIBRARIES and dotted not in _MAKERS)


def _identifier(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _fields(made: ast.ClassDef) -> set[str]:
    """Return the fields of a data class or a named tuple."""
    targets = [each.target for each in made.body if isinstance(each, ast.AnnAssign)]
    return {each.id for each in targets if isinstance(each, ast.Name)}
