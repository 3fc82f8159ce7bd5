"""Sums that a loop keeps beside what it trains: a loss of the epoch, a meter for each task."""

import ast
from collections.abc import Iterator

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.source_file import SourceFile

__all__ = ["is_running_sum"]

_FRESH = frozenset({"torch.zeros", "torch.tensor", "torch.full"})
_TABLES = frozenset({"collections.defaultdict", "collections.Counter"})
_LOOPS = ast.For | ast.While


def is_running_sum(source: SourceFile, node: ast.AugAssign) -> bool:
    """Return whether what is added to is read by nothing in the loop around, and was made by the function.

    It may be a tensor that is added to in place: no graph that the loop makes has it. In a list or dictionary of the
    function's, nothing but numbers was put.
    """
    target = node.target
    base = target.value if isinstance(target, ast.Subscript) else target
    loop = next((each for each in source.above(node) if isinstance(each, _LOOPS)), None)
    scope = source.scope(node)
    if not isinstance(base, ast.Name) or loop is None or loop not in [*ast.walk(scope)]:
        return False
    added = {id(one) for one in _sums(scope, base.id)}
    inside = [each for each in ast.walk(loop) if isinstance(each, ast.Name) and each.id == base.id]
    if any(id(each) not in added for each in inside):
        return False
    words = [each for each in ast.walk(scope) if isinstance(each, ast.Global | ast.Nonlocal)]
    given = [each for each in ast.walk(scope) if isinstance(each, ast.arg) and each.arg == base.id]
    stored = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    stores = [each for each in stored if each.id == base.id and id(each) not in added]
    bound = [value for each in ast.walk(scope) for to, value in pairs(each) if to in stores]
    if given or len(bound) != len(stores) or not bound or any(base.id in each.names for each in words):
        return False
    is_made = _is_table if isinstance(target, ast.Subscript) else _is_number
    return all(is_made(source, value) for value in bound) and _holds_numbers(scope, base.id)


def _sums(scope: ast.AST, name: str) -> Iterator[ast.Name]:
    """Yield the mentions of a variable that is added to, or whose items are."""
    for node in ast.walk(scope):
        if isinstance(node, ast.AugAssign):
            base = node.target.value if isinstance(node.target, ast.Subscript) else node.target
            if isinstance(base, ast.Name) and base.id == name:
                yield base


def _holds_numbers(scope: ast.AST, name: str) -> bool:
    """Return whether nothing but numbers is put into items of a variable."""
    for node in ast.walk(scope):
        for target, value in pairs(node):
            is_item = isinstance(target, ast.Subscript) and ast.unparse(target.value) == name
            if is_item and not isinstance(value, ast.Constant):
                return False
    return True


def _is_number(source: SourceFile, node: ast.expr) -> bool:
    """Return whether something is a number, or a new tensor."""
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    is_fresh = isinstance(node, ast.Call) and source.names.dotted(node.func) in _FRESH
    return is_fresh or (isinstance(node, ast.Constant) and isinstance(node.value, int | float))


def _is_table(source: SourceFile, node: ast.expr) -> bool:
    """Return whether something is a new list or dictionary of numbers."""
    match node:
        case ast.Call():
            return source.names.dotted(node.func) in _TABLES and all(
                ast.unparse(e) in ("int", "float") for e in node.args
            )
        case ast.Dict():
            return all(_is_number(source, each) for each in node.values)
        case ast.List():
            return all(_is_number(source, each) for each in node.elts)
        case ast.DictComp():
            return _is_number(source, node.value)
        case ast.BinOp(left=ast.List() as items, op=ast.Mult()):
            return all(_is_number(source, each) for each in items.elts)
    return False
