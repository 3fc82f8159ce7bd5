"""Where a value comes from: names followed through assignments, arguments, attributes and returns, without running.

An origin is a call that makes something: `DataLoader(...)`, `Net(...)`, `resnet18()`. What cannot be followed has none.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["Flow", "Origin", "pairs"]

Origin = tuple[SourceFile, ast.Call]

# Calls that hand on what they are given, and methods that hand on what they are called on.
_THROUGH = {"enumerate", "tqdm", "zip", "iter", "cycle", "islice", "chain", "track", "compile_loader", "reversed"}
_METHODS = {"to", "cuda", "cpu", "train", "eval", "float", "double", "half", "requires_grad_", "apply", "share_memory"}


class Flow:
    """The origins of expressions in one project."""

    def __init__(self, project: Project) -> None:
        """Take the project as it is now."""
        self._project = project

    def origins(self, source: SourceFile, node: ast.expr) -> list[Origin]:
        """Return the calls that may have made the value of an expression."""
        found: dict[ast.Call, SourceFile] = {}
        self._follow(source, node, found, set())
        return [(place, call) for call, place in found.items()]

    # -- expressions --------------------------------------------------------------------------------------------

    def _follow(
        self, source: SourceFile, node: ast.expr, found: dict[ast.Call, SourceFile], seen: set[ast.AST]
    ) -> None:
        if node in seen:
            return
        seen.add(node)
        for place, inner in self._from(source, node):
            if inner is node and isinstance(node, ast.Call):
                found[node] = place
            else:
                self._follow(place, inner, found, seen)

    def _from(self, source: SourceFile, node: ast.expr) -> Iterator[tuple[SourceFile, ast.expr]]:
        """Yield the expressions that a value may be handed on from; a call that makes something yields itself."""
        if isinstance(node, ast.Call):
            yield from self._from_call(source, node)
        elif isinstance(node, ast.Name):
            yield from self._bindings(source, node)
        elif isinstance(node, ast.Attribute):
            yield from self._attributes.get(node.attr, ())
        elif isinstance(node, ast.IfExp):
            yield from ((source, node.body), (source, node.orelse))
        elif isinstance(node, ast.NamedExpr | ast.Starred):
            yield source, node.value
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield from self._item(source, node.value, node.slice.value)

    def _item(self, source: SourceFile, node: ast.expr, key: object) -> Iterator[tuple[SourceFile, ast.expr]]:
        """Yield one of several values: of a tuple, a dictionary, or what a function returns together."""
        if isinstance(node, ast.Dict):
            keys = (each.value if isinstance(each, ast.Constant) else None for each in node.keys)
            yield from ((source, value) for name, value in zip(keys, node.values, strict=True) if name == key)
        elif isinstance(node, ast.Tuple | ast.List) and isinstance(key, int) and key < len(node.elts):
            yield source, node.elts[key]
        elif isinstance(node, ast.Name):
            held = [each for each in self._bindings(source, node) if not isinstance(each[1], ast.Name)]
            yield from (each for place, value in held for each in self._item(place, value, key))
        elif isinstance(node, ast.Call):
            yield from self._item_of_call(source, node, key)

    def _item_of_call(self, source: SourceFile, node: ast.Call, key: object) -> Iterator[tuple[SourceFile, ast.expr]]:
        if _last(node.func) == "prepare" and isinstance(key, int):  # of accelerate: hands back what it is given
            yield from ((source, each) for each in node.args[key : key + 1])
        made = self._project.functions.get(_last(node.func), ())
        given = [(place, value) for place, function in made for value in _given(place, function)]
        values = [each for each in given if not isinstance(each[1], ast.Call)]
        yield from (each for place, value in values for each in self._item(place, value, key))

    def _from_call(self, source: SourceFile, node: ast.Call) -> Iterator[tuple[SourceFile, ast.expr]]:
        name = _last(node.func)
        if name in _THROUGH:
            yield from ((source, each) for each in node.args)
        elif isinstance(node.func, ast.Attribute) and name in _METHODS:
            yield source, node.func.value
        elif name in self._project.functions and not source.names.dotted(node.func).startswith("torch."):
            for place, function in self._project.functions[name]:
                yield from ((place, each) for each in _given(place, function))
        else:
            yield source, node

    # -- names --------------------------------------------------------------------------------------------------

    def _bindings(self, source: SourceFile, node: ast.Name) -> Iterator[tuple[SourceFile, ast.expr]]:
        """Yield what a name was bound to, in the innermost scope that binds it."""
        for scope in (source.scope(node), *(each for each in source.above(source.scope(node)))):
            if isinstance(scope, ast.ClassDef) or not isinstance(scope, Function | ast.Lambda | ast.Module):
                continue
            bound = list(_assigned(self._names(source, scope), node.id))
            is_argument = isinstance(scope, Function) and node.id in _arguments(scope)
            if bound or is_argument:
                yield from ((source, each) for each in bound)
                if isinstance(scope, Function) and is_argument:
                    yield from self._passed(scope, node.id)
                return
        name = source.names.imports.get(node.id, "").rpartition(".")[2]
        for place in self._project.sources if name else ():
            yield from ((place, each) for each in _assigned(self._names(place, place.tree), name))

    def _names(self, source: SourceFile, scope: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
        """Return targets and values of the assignments of one scope."""
        return self._assignments.get(scope, [])

    @cached_property
    def _assignments(self) -> dict[ast.AST, list[tuple[ast.expr, ast.expr]]]:
        found: dict[ast.AST, list[tuple[ast.expr, ast.expr]]] = {}
        for source in self._project.sources:
            for node in ast.walk(source.tree):
                bound = list(pairs(node))
                if bound:
                    found.setdefault(source.scope(node), []).extend(bound)
        return found

    @cached_property
    def _attributes(self) -> dict[str, list[tuple[SourceFile, ast.expr]]]:
        """What the attributes of any object were set to, by name."""
        found: dict[str, list[tuple[SourceFile, ast.expr]]] = {}
        for source in self._project.sources:
            for node in ast.walk(source.tree):
                for target, value in pairs(node):
                    if isinstance(target, ast.Attribute):
                        found.setdefault(target.attr, []).append((source, value))
        return found

    def _passed(self, function: Function, name: str) -> Iterator[tuple[SourceFile, ast.expr]]:
        """Yield what callers of a function give for one of its arguments; a class is called in place of `__init__`.

        What a method's `self` is, its calls are made on: `net.configure_optimizers()`.
        """
        classes = [each for _, each in self._project.nodes(ast.ClassDef) if function in each.body]
        owner = next((each.name for each in classes if function.name == "__init__"), function.name)
        names = _arguments(function)
        at = names.index(name) - (1 if names[0] in ("self", "cls") else 0)
        if name == "self" and at < 0 and classes and function.name != "__init__":
            calls = self._calls_of(function.name)
            yield from ((source, call.func.value) for source, call in calls if isinstance(call.func, ast.Attribute))
            return
        for source, call in self._calls_of(owner):
            if not any(isinstance(each, ast.Starred) for each in call.args) and 0 <= at < len(call.args):
                yield source, call.args[at]
            yield from ((source, each.value) for each in call.keywords if each.arg == name)

    def _calls_of(self, name: str) -> Iterable[Origin]:
        return self._calls.get(name, ())

    @cached_property
    def _calls(self) -> dict[str, list[Origin]]:
        found: dict[str, list[Origin]] = {}
        for source, call in self._project.nodes(ast.Call):
            found.setdefault(_last(call.func), []).append((source, call))
        return found


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _arguments(function: Function) -> list[str]:
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _assigned(pairs: Iterable[tuple[ast.expr, ast.expr]], name: str) -> Iterator[ast.expr]:
    yield from (value for target, value in pairs if isinstance(target, ast.Name) and target.id == name)


def pairs(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what one statement binds: targets with values, tuples taken apart."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _apart(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield node.target, node.value


def _apart(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value
    elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from _apart(one, other)
    else:
        for at, one in enumerate(target.elts):
            yield one, ast.Subscript(value, ast.Constant(at), ast.Load())


def _given(source: SourceFile, function: Function) -> Iterator[ast.expr]:
    """Yield what a function returns, or what its generator walks."""
    for node in ast.walk(function):
        if source.scope(node) is not function:
            continue
        if isinstance(node, ast.Return | ast.YieldFrom) and node.value is not None:
            yield node.value
        elif isinstance(node, ast.For) and any(isinstance(each, ast.Yield) for each in ast.walk(node)):
            yield node.iter
