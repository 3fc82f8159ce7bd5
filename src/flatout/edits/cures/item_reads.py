"""Items of tensors that a loop reads by their numbers, `labels[i]`: of a list that is made before the loop.

Each `labels[i]` is a tensor of its own, of 1 to 3 us. Loops are changed that call nothing but what is known and write
to nothing but what the function has made, so that the tensor stays as it is. Whether it is one, of one dimension, is
asked where the list is made: anything else is read as before.
"""

import ast
from collections import defaultdict
from dataclasses import dataclass

from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.blocks import loads, stores
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import is_computing, is_of_users
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name

__all__ = ["Items", "LoopsOf", "is_known", "is_of_torch", "is_plain_tensor", "items_in_loops", "stays", "write_lists"]

_ADDS = frozenset({"add", "append", "extend"})  # to a list or a set
_MAKES = frozenset(
    f"torch.{name}" for name in ("arange", "argmax", "argmin", "argsort", "empty", "full", "ones", "zeros")
)
_OWN = frozenset({"Counter", "dict", "set"})
_TYPES = ("int64", "int32", "float32", "float64")
_LEAVES = (  # parts of a loop in which other code runs, or names change
    ast.Await | ast.Yield | ast.YieldFrom | ast.With | ast.Delete | ast.Import | ast.ImportFrom | ast.Global
    | ast.Nonlocal | Function | ast.Lambda | ast.ClassDef
)  # fmt: skip
_Loop = ast.For | ast.While | ast.comprehension


@dataclass(frozen=True)
class LoopsOf:
    """A function whose loops are read."""

    project: Project
    source: SourceFile
    scope: Function

    def bound(self, name: str) -> list[ast.expr]:
        """Return what a name is bound to in the function."""
        found = (pair for node in ast.walk(self.scope) for pair in pairs(node))
        return [value for target, value in found if isinstance(target, ast.Name) and target.id == name]

    @property
    def arguments(self) -> set[str]:
        """The names of its arguments."""
        return {each.arg for each in ast.walk(self.scope.args) if isinstance(each, ast.arg)}


Items = dict[tuple[ast.stmt, str], list[ast.Subscript]]
"""Reads of items, by the statement that the loop is part of and the tensor as it is named."""


def items_in_loops(loops: LoopsOf) -> Items:
    """Return what loops of a function read by numbers, of what they do not change."""
    found: Items = defaultdict(list)
    for node in ast.walk(loops.scope):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        if not isinstance(node.value, ast.Name) or not _is_there(loops, node.value.id):
            continue
        outer = _outermost(loops, node)
        if outer is not None and not isinstance(node.slice, ast.Slice | ast.Tuple | ast.Constant):
            found[outer, ast.unparse(node.value)].append(node)
    return {key: nodes for key, nodes in found.items() if stays(loops, *key)}


def write_lists(source: SourceFile, items: Items, torch: str, changes: TextChanges) -> None:
    """Make a list of numbers before each loop, and read that."""
    for (outer, whole), nodes in items.items():
        name = fresh_name(source, f"numbers_of_{whole.rpartition('.')[2]}")
        changes.before(outer, f"{name} = {whole}.tolist() if {is_plain_tensor(torch, whole, whole)} else {whole}")
        for node in nodes:
            changes.replace(node.value, name)


def is_plain_tensor(torch: str, first: str, whole: str) -> str:
    """Return the code that asks for a tensor of one dimension whose numbers Python has; `first`: as it is made."""
    types = ", ".join(f"{torch}.{name}" for name in _TYPES)
    return f"isinstance({first}, {torch}.Tensor) and {whole}.dim() == 1 and {whole}.dtype in ({types})"


def is_of_torch(loops: LoopsOf, node: ast.expr) -> bool:
    """Return whether a name is bound in the function to what a function of torch makes, or an attribute is set so."""
    values: list[tuple[SourceFile, ast.expr]] = []
    if isinstance(node, ast.Attribute):
        values = attribute_values(loops.project, loops.source, node)
    elif isinstance(node, ast.Name) and node.id not in loops.arguments:
        values = [(loops.source, value) for value in loops.bound(node.id)]
    calls = [place.names.dotted(value.func) for place, value in values if isinstance(value, ast.Call)]
    return bool(calls) and len(calls) == len(values) and set(calls) <= _MAKES


def _is_there(loops: LoopsOf, name: str) -> bool:
    """Return whether a name has a value wherever the function's loops begin: an argument, or bound in its body."""
    bound = [each for each in loops.scope.body if isinstance(each, ast.Assign) and name in stores([each])]
    return name in loops.arguments or len(bound) == 1


def _outermost(loops: LoopsOf, node: ast.expr) -> ast.stmt | None:
    """Return the statement that the outermost loop around a node is, or is part of; None without one."""
    found: ast.stmt | None = None
    inner: ast.AST = node
    for above in loops.source.above(node):
        if above is loops.scope:
            return found
        if isinstance(above, Function | ast.Lambda | ast.ClassDef):
            return None
        if isinstance(above, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            first = above.generators[0].iter
            found = found if inner is above.generators[0] and node in ast.walk(first) else loops.source.statement(above)
        elif isinstance(above, ast.For | ast.While):
            found = above if inner in above.body or isinstance(above, ast.While) else found
        inner = above
    return None


def stays(loops: LoopsOf, outer: ast.stmt, whole: str) -> bool:
    """Return whether a tensor is the same, with the same values, in each turn of a loop.

    The loop calls nothing but what is known, and writes to items of what the function has made alone, which the tensor
    is no view of.
    """
    inside = [*ast.walk(outer)]
    root = whole.partition(".")[0]
    if any(_is_unknown(loops, node, root) for node in inside) or (root != "self" and root in stores([outer])):
        return False
    items = [node.value for node in inside if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)]
    made_of = loads(loops.bound(root))
    made_of |= loads([value for other in made_of for value in loops.bound(other)])
    return not {each.id for each in items if isinstance(each, ast.Name)} & (made_of | {root})


def _is_unknown(loops: LoopsOf, node: ast.AST, root: str) -> bool:
    """Return whether a part of a loop may change a tensor that is not its own."""
    if isinstance(node, ast.Call):
        return not is_known(loops, node)
    if isinstance(node, ast.Subscript | ast.Attribute):
        return not _is_harmless(loops, node, root)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return not _is_number(loops, node.target.id)
    return isinstance(node, _LEAVES)


def _is_harmless(loops: LoopsOf, node: ast.Subscript | ast.Attribute, root: str) -> bool:
    """Return whether an item or attribute is read, or is an item of what the function, or the object, has made."""
    if isinstance(node.ctx, ast.Load):
        return True
    if not isinstance(node, ast.Subscript):
        return False
    if isinstance(node.value, ast.Attribute):
        return root != "self" and ast.unparse(node.value.value) == "self" and is_of_torch(loops, node.value)
    made = loops.bound(node.value.id) if isinstance(node.value, ast.Name) else []
    return bool(made) and all(map(_makes, made))


def is_known(loops: LoopsOf, call: ast.Call) -> bool:
    """Return whether a call changes no tensor: it only computes, or adds to a list; and is none of the user's."""
    if is_of_users(loops.project, call.func):
        return False
    return is_computing(loops.source, call) or (isinstance(call.func, ast.Attribute) and call.func.attr in _ADDS)


def _makes(value: ast.expr) -> bool:
    """Return whether an expression makes a tensor, a table or a list of numbers that nobody else has."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return any(isinstance(one, ast.List) and all(map(_is_constant, one.elts)) for one in (value.left, value.right))
    if isinstance(value, ast.Call):
        called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return f"torch.{called}" in _MAKES or (called in _OWN and not value.args)
    return isinstance(value, ast.Dict) and not value.keys


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _is_number(loops: LoopsOf, name: str) -> bool:
    """Return whether a name begins as a plain number or text: adding to a tensor changes that in place."""
    values = loops.bound(name)
    return bool(values) and all(isinstance(value, ast.Constant | ast.JoinedStr) for value in values)
