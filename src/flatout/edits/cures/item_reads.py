"""Items of tensors that a loop reads by their numbers, `labels[i]`: of a list that is made before the loop.

Each `labels[i]` is a tensor of its own, of 1 to 3 us. Loops are changed that call nothing but what is known and write
to nothing but what the function has made, so that the tensor stays as it is. Whether it is one, of one dimension, is
asked where the list is made: anything else is read as before.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator

from flatout.edits.reading.blocks import is_plain, stores
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name

__all__ = ["Items", "items_in_loops", "write_lists"]

_CALLS = frozenset(
    {
        "abs",
        "bool",
        "enumerate",
        "float",
        "int",
        "len",
        "list",
        "max",
        "min",
        "print",
        "range",
        "str",
        "sum",
        "tuple",
        "zip",
    }
)
_METHODS = frozenset(
    {
        "add",
        "append",
        "argmax",
        "argsort",
        "extend",
        "flatten",
        "format",
        "item",
        "join",
        "reshape",
        "size",
        "tolist",
        "view",
    }
)
_NEW = frozenset({"Counter", "defaultdict", "dict", "list", "set", "empty", "full", "ones", "zeros"})
_Loop = ast.For | ast.While | ast.comprehension

Items = dict[tuple[ast.stmt, str], list[ast.Subscript]]
"""Reads of items, by the statement that the loop is part of and the tensor as it is named."""


def items_in_loops(source: SourceFile, scope: ast.AST) -> Items:
    """Return what loops of a function read by numbers, of what they do not change."""
    found: Items = defaultdict(list)
    for node in ast.walk(scope):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load) or not is_plain(node.value):
            continue
        outer = _outermost(source, scope, node)
        if outer is not None and not isinstance(node.slice, ast.Slice | ast.Tuple | ast.Constant):
            found[outer, ast.unparse(node.value)].append(node)
    return {key: nodes for key, nodes in found.items() if _stays(scope, *key)}


def write_lists(source: SourceFile, items: Items, torch: str, changes: TextChanges) -> None:
    """Make a list of numbers before each loop, and read that."""
    for (outer, whole), nodes in items.items():
        name = fresh_name(source, f"numbers_of_{whole.rpartition('.')[2]}")
        flat = f"isinstance({whole}, {torch}.Tensor) and {whole}.dim() == 1"
        changes.before(outer, f"{name} = {whole}.tolist() if {flat} else {whole}")
        for node in nodes:
            changes.replace(node.value, name)


def _outermost(source: SourceFile, scope: ast.AST, node: ast.expr) -> ast.stmt | None:
    """Return the statement that the outermost loop around a node is, or is part of; None without one."""
    found: ast.stmt | None = None
    inner: ast.AST = node
    for above in source.above(node):
        if above is scope:
            return found
        if isinstance(above, Function | ast.Lambda | ast.ClassDef):
            return None
        if isinstance(above, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            first = above.generators[0].iter
            found = found if inner is above.generators[0] and node in ast.walk(first) else source.statement(above)
        elif isinstance(above, ast.For | ast.While):
            found = above if inner in above.body or isinstance(above, ast.While) else found
        inner = above
    return None


def _stays(scope: ast.AST, outer: ast.stmt, whole: str) -> bool:
    """Return whether a tensor is the same, with the same values, in each turn of a loop."""
    inside = [*ast.walk(outer)]
    root = whole.partition(".")[0]
    if root != "self" and (root in stores([outer]) or any(_binds(node, root) for node in inside)):
        return False
    for node in inside:
        if isinstance(node, ast.Call) and not _is_known(node):
            return False
        if isinstance(node, ast.Subscript | ast.Attribute) and not _is_harmless(scope, node):
            return False
        added = node.target if isinstance(node, ast.AugAssign) else None
        if isinstance(added, ast.Name) and not _is_number(scope, added.id):
            return False
        if isinstance(
            node, ast.Await | ast.Yield | ast.YieldFrom | ast.With | ast.Delete | ast.Import | ast.ImportFrom
        ):
            return False
    return True


def _is_harmless(scope: ast.AST, node: ast.Subscript | ast.Attribute) -> bool:
    """Return whether an item or attribute is read, or is an item of what the function has made."""
    if isinstance(node.ctx, ast.Load):
        return True
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and _is_new(scope, node.value.id)


def _binds(node: ast.AST, name: str) -> bool:
    return isinstance(node, Function | ast.Lambda | ast.ClassDef) or (
        isinstance(node, ast.Global | ast.Nonlocal) and name in node.names
    )


def _is_known(call: ast.Call) -> bool:
    """Return whether a call changes no tensor: of Python's own functions, and methods that are known."""
    if isinstance(call.func, ast.Name):
        return call.func.id in _CALLS
    return isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS


def _bound(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(scope):
        for target, value in pairs(node):
            if isinstance(target, ast.Name) and target.id == name:
                yield value


def _is_new(scope: ast.AST, name: str) -> bool:
    """Return whether a name stands for what the function has made by itself, wherever it is bound."""
    values = [*_bound(scope, name)]
    return bool(values) and all(_makes(value) for value in values)


def _makes(value: ast.expr) -> bool:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return _makes(value.left) or _makes(value.right)
    if isinstance(value, ast.Call):
        called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return called in _NEW
    return isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def _is_number(scope: ast.AST, name: str) -> bool:
    """Return whether a name begins as a plain number or text: adding to a tensor changes that in place."""
    values = [*_bound(scope, name)]
    return bool(values) and all(isinstance(value, ast.Constant | ast.JoinedStr) for value in values)
