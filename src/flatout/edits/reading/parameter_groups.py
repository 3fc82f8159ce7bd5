"""Whose parameters an optimizer is given: said in the call itself, or in groups that the same function makes before."""

import ast
from collections.abc import Iterator
from typing import TypeGuard

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["owner_of_parameters"]

_PARAMETERS = ("parameters", "named_parameters")
_VIEWS = ("items", "values")
_HANDED_ON = ("list", "tuple", "dict", "set", "filter", "iter")
_ADDING = ("append", "extend", "update", "insert", "add")


class _Unknown(Exception):
    """What an optimizer is given cannot be followed."""


def owner_of_parameters(source: SourceFile, call: ast.Call) -> ast.expr | None:
    """Return the expression whose `parameters()` the optimizer made by `call` is given; None where of several."""
    given = call.args[0] if call.args else next((each.value for each in call.keywords if each.arg == "params"), None)
    if given is None:
        return None
    asked = [each.func for each in ast.walk(given) if isinstance(each, ast.Call)]
    owners = [each.value for each in asked if isinstance(each, ast.Attribute) and each.attr in _PARAMETERS]
    if not owners:
        try:
            owners = list(_owners(source, source.scope(call), given, frozenset()))
        except _Unknown:
            return None
    return owners[0] if len({ast.unparse(each) for each in owners}) == 1 else None


def _owners(source: SourceFile, scope: ast.AST, node: ast.expr, seen: frozenset[ast.AST]) -> Iterator[ast.expr]:
    """Yield the expressions whose parameters come to be in `node`."""
    if node in seen:
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PARAMETERS:
        yield node.func.value
        return
    for each in _parts(source, scope, node):
        yield from _owners(source, scope, each, seen | {node})


def _parts(source: SourceFile, scope: ast.AST, node: ast.expr) -> list[ast.expr]:
    """Return the expressions that parameters may come to `node` from.

    Raises:
        _Unknown: there may be others.
    """
    match node:
        case ast.List() | ast.Tuple() | ast.Set():
            return node.elts
        case ast.Dict():
            return _values(node)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
            return [_walked(node.generators, node.elt)]
        case ast.DictComp():
            return [_walked(node.generators, node.value)]
        case ast.IfExp():
            return [node.body, node.orelse]
        case ast.BinOp(op=ast.Add()):
            return [node.left, node.right]
        case ast.Starred() | ast.Subscript():
            return [node.value]
        case ast.Call():
            return _handed_on(source, node)
        case ast.Name():
            return _bound(source, scope, node.id)
        case _:
            raise _Unknown


def _values(node: ast.Dict) -> list[ast.expr]:
    """Return the parameters of a group, or all values of a dictionary that is none."""
    keys = [each.value if isinstance(each, ast.Constant) else None for each in node.keys]
    return [node.values[keys.index("params")]] if "params" in keys else node.values


def _walked(generators: list[ast.comprehension], made: ast.expr) -> ast.expr:
    """Return what a comprehension takes its items from."""
    for each in generators:
        if isinstance(made, ast.Name) and any(
            isinstance(one, ast.Name) and one.id == made.id for one in ast.walk(each.target)
        ):
            return each.iter
    raise _Unknown


def _handed_on(source: SourceFile, node: ast.Call) -> list[ast.expr]:
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in _VIEWS and not node.args:
        return [function.value]
    if isinstance(function, ast.Name) and function.id in _HANDED_ON and function.id not in source.names.bound:
        return [each for each in node.args if not isinstance(each, ast.Lambda)]
    raise _Unknown


def _bound(source: SourceFile, scope: ast.AST, name: str) -> list[ast.expr]:
    """Return everything that a name is bound to in its scope, or that is added to it."""
    nodes = [each for each in ast.walk(scope) if source.scope(each) is scope]
    bound = [value for node in nodes for value in _bound_by(node, name)]
    added = [value for node in nodes for value in _added_by(node, name)]
    inner = [each.target for each in nodes if isinstance(each, ast.comprehension)]  # another name of the same letters
    num_inner = sum(_is(each, name) for target in inner for each in ast.walk(target))
    num_stored = sum(_is(each, name) and isinstance(each.ctx, ast.Store) for each in nodes)
    num_augmented = sum(isinstance(each, ast.AugAssign) and _is(each.target, name) for each in nodes)
    if not bound or num_stored != len(bound) + num_augmented + num_inner or _is_shared(source, scope, nodes, name):
        raise _Unknown
    return bound + added


def _bound_by(node: ast.AST, name: str) -> Iterator[ast.expr]:
    yield from (value for target, value in pairs(node) if _is(target, name))
    if isinstance(node, ast.For):
        yield from (node.iter for each in ast.walk(node.target) if _is(each, name))


def _added_by(node: ast.AST, name: str) -> Iterator[ast.expr]:
    if isinstance(node, ast.AugAssign) and _is(node.target, name):
        yield node.value
    if isinstance(node, ast.Assign):  # groups[0] = ...
        written = [each for each in node.targets if isinstance(each, ast.Subscript) and _is(each.value, name)]
        yield from (node.value for _ in written)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is(node.func.value, name):
        yield from node.args if node.func.attr in _ADDING else ()


def _is_shared(source: SourceFile, scope: ast.AST, nodes: list[ast.AST], name: str) -> bool:
    """Return whether something that is not looked at may add to what a name stands for."""
    if any(isinstance(each, ast.Global | ast.Nonlocal) and name in each.names for each in ast.walk(source.tree)):
        return True
    if isinstance(scope, Function) and any(
        each.arg == name for each in ast.walk(scope.args) if isinstance(each, ast.arg)
    ):
        return True
    calls = [each for each in nodes if isinstance(each, ast.Call) and any(_is(one, name) for one in each.args)]
    return not all(_leaves_alone(source, each) for each in calls)


def _leaves_alone(source: SourceFile, call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name) and function.id not in source.names.bound | {*source.names.imports}:
        return function.id in (*_HANDED_ON, "len", "print", "sum", "sorted", "str", "any", "all", "zip", "enumerate")
    added = isinstance(function, ast.Attribute) and function.attr in _ADDING
    return added or source.names.dotted(function).startswith("torch.")


def _is(node: ast.AST, name: str) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id == name
