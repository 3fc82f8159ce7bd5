"""Items of tensors that a loop reads by their numbers, `labels[i]`: of an array in the same memory.

Each `labels[i]` is a tensor of its own, of 1 to 3 us; that of an array takes 0.1 us. The array shows at every moment
what the tensor does, so that the loop may write to it by whatever name. The names have to stay those of the same
tensors, and the numbers in the brackets to be Python's, or elements that become numbers in the same loop
(`element_reads`).
"""

import ast
from collections.abc import Container
from dataclasses import dataclass

from flatout.edits.cures.elements.function_loops import LoopsOf, calls_builtin
from flatout.edits.cures.elements.whole_numbers import Numbers
from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.source_file import SourceFile

__all__ = ["Item", "is_of_torch", "items_in_loops"]

_MAKES = frozenset(
    f"torch.{name}" for name in ("arange", "argmax", "argmin", "argsort", "empty", "full", "ones", "zeros")
)
_WALKS = ("enumerate", "len", "range", "zip")
_SHOWN = frozenset({"dim", "dtype", "shape", "size"})


@dataclass(frozen=True)
class Item:
    """An item that is read, and the statement before which the array is to be made."""

    node: ast.Subscript
    anchor: ast.stmt

    @property
    def whole(self) -> str:
        """The name of the tensor."""
        return ast.unparse(self.node.value)


def items_in_loops(loops: LoopsOf, elements: dict[str, ast.stmt]) -> list[Item]:
    """Return what loops read by numbers; `elements`: names of elements, and where their arrays are made."""
    found, numbers = [], Numbers(loops)
    for node in ast.walk(loops.scope):
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        if not isinstance(node.value, ast.Name) or isinstance(node.slice, ast.Slice | ast.Tuple | ast.Constant):
            continue
        anchor = loops.outermost(node)
        if anchor is not None and isinstance(node.slice, ast.Name) and node.slice.id in elements:
            anchor = elements[node.slice.id]
        elif not numbers.is_counted(node.slice):
            anchor = None
        if anchor is not None and node in ast.walk(anchor) and _is_plain(loops, node.value.id, anchor):
            found.append(Item(node, anchor))
    return found


def _is_plain(loops: LoopsOf, name: str, anchor: ast.stmt) -> bool:
    """Return whether a name is that of one thing in a loop, which is handed on to nobody there."""
    inside = {*ast.walk(anchor)}
    mentions = [node for node in loops.named.get(name, ()) if node in inside]
    return loops.keeps(name, anchor) and all(_is_looked_at(loops.source, node) for node in mentions)


def _is_looked_at(source: SourceFile, node: ast.Name) -> bool:
    above = source.parents[node]
    if isinstance(above, ast.Subscript):
        return above.value is node
    if isinstance(above, ast.Attribute):
        return above.attr in _SHOWN
    if isinstance(above, ast.For | ast.comprehension):
        return above.iter is node
    return calls_builtin(source, above, _WALKS)


def is_of_torch(loops: LoopsOf, node: ast.expr, makes: Container[str] = _MAKES) -> bool:
    """Return whether a name is bound in the function to what a function of torch makes, or an attribute is set so."""
    values: list[tuple[SourceFile, ast.expr]] = []
    if isinstance(node, ast.Attribute):
        values = attribute_values(loops.project, loops.source, node)
    elif isinstance(node, ast.Name) and node.id not in loops.arguments:
        values = [(loops.source, value) for value in loops.bound(node.id)]
    calls = [place.names.dotted(value.func) for place, value in values if isinstance(value, ast.Call)]
    return bool(calls) and len(calls) == len(values) and all(each in makes for each in calls)
