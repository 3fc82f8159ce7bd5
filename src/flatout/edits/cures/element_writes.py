"""Numbers written into a tensor one by one, in a loop: through its NumPy view, which is the same memory.

Each `x[i, j] = 1.0` is two operations of torch, of 2 to 4 us; an array's takes 0.1 us. Those that the loop reads one by
one become plain numbers at the same time (`element_reads`). The tensor is made by the function, which uses it for
nothing but these writes until the loop is over, or it is one that an object keeps for itself. What is written are
numbers in sight that its type has, or what `float` returns, and it is written where whole numbers of Python's say. Its
type and device are asked where the array is made. Loops whose errors are caught are left, since NumPy raises others.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from flatout.edits.cures.element_reads import Reads, candidates, is_flat, reads_in_loops
from flatout.edits.cures.elements.array_lines import Written, put_in
from flatout.edits.cures.elements.function_loops import LoopsOf, calls_builtin
from flatout.edits.cures.elements.own_attributes import values_of_own
from flatout.edits.cures.elements.unsuited_code import unsuited
from flatout.edits.cures.elements.whole_numbers import Numbers
from flatout.edits.cures.item_reads import is_of_torch
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.called_functions import functions_at
from flatout.edits.reading.error_handlers import caught_at
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["by_array"]

_FILLED = frozenset(f"torch.{name}" for name in ("zeros", "ones", "full", "empty"))
_SHORT = {"float": "float32", "double": "float64", "int": "int32", "long": "int64"}
_FLOATS = ("float32", "float64")
_SIGNED = (*_FLOATS, "int64")
_ALL = (*_SIGNED, "int32", "bool", "uint8")
_LARGEST = 127  # whole number that every one of these types has
_RANGE = (1e-30, 1e30)  # numbers that float32 has, and none of them nearly
_Write = ast.Assign | ast.AugAssign


def by_array(place: EditPlace) -> WrittenEdit:
    """Write `x[i, j] = number`, in the loops of the function and of those that the line calls, to `x.numpy()`."""
    reason = "elements of a tensor that are read or written one by one, in a loop, are not found"
    for source, scope in functions_at(place.project, place.source, place.statement):
        if not isinstance(scope, Function):
            continue
        loops = LoopsOf(place.project, source, scope)
        reads, written = _found(loops, certain=scope is place.source.scope(place.statement))
        if not (reads.elements or reads.items or written):
            continue
        against = unsuited(place.project, source)
        if against:
            reason = against
            continue
        changes = TextChanges(source)
        put_in(source, changes, reads, written)
        return WrittenEdit(changes.done(place.project), changed=1)
    return place.left(reason)


def _found(loops: LoopsOf, *, certain: bool) -> tuple[Reads, list[Written]]:
    """Return what may be read by numbers, and what may be written so.

    `certain`: items that are read by their numbers are worth a trial, though nothing shows that they are of tensors.
    """
    first = candidates(loops)
    written = list(_written(loops, first))
    while True:
        reads = reads_in_loops(replace(first, writes={node: each.anchor for each in written for node in each.items}))
        kept = [each for each in written if _holds(loops, reads, each)]
        if len(kept) == len(written):
            break
        written = kept
    shown = {each.anchor for each in written if each.by_elements}
    shown |= {each.anchor for each in reads.elements if is_flat(each.whole) or is_of_torch(loops, each.whole)}
    shown |= {each.anchor for each in reads.items if certain or is_of_torch(loops, each.node.value)}
    return (
        replace(
            reads,
            elements=tuple(each for each in reads.elements if each.anchor in shown),
            items=tuple(each for each in reads.items if each.anchor in shown),
        ),
        written,
    )


def _written(loops: LoopsOf, reads: Reads) -> Iterator[Written]:
    """Yield tensors that outermost loops write to by number, as far as names tell."""
    source, scope = loops.source, loops.scope
    all_ = [node for node in ast.walk(scope) if isinstance(node, ast.For | ast.While) and source.scope(node) is scope]
    for loop in (loop for loop in all_ if not any(above in all_ for above in source.above(loop))):
        places = [node for node in ast.walk(loop) if isinstance(node, ast.Subscript)]
        places = [node for node in places if not isinstance(node.ctx, ast.Load)]
        for whole in sorted({ast.unparse(node.value) for node in places}):
            items = tuple(node for node in places if ast.unparse(node.value) == whole)
            anchors = {reads.anchor_of(part) for node in items for part in _parts(node)} - {None}
            anchor = next(iter(anchors), None) or loop
            if len(anchors) > 1 or not {*items} <= {*ast.walk(anchor)}:
                continue
            types = _types(source, items)
            if types and _is_own(loops, loop, items, types) and not caught_at(loops.project, source, loop):
                yield Written(items[0].value, items, anchor, types, bool(anchors))


def _holds(loops: LoopsOf, reads: Reads, written: Written) -> bool:
    """Return whether what is written to is written where numbers say, with the reads that are left."""
    numbers = Numbers(loops)
    is_known = numbers.is_counted if written.by_elements else numbers.is_whole
    parts = [part for node in written.items for part in _parts(node)]
    if not all(reads.anchor_of(part) is written.anchor or is_known(part) for part in parts):
        return False
    return isinstance(written.whole, ast.Name) or reads.is_quiet(ast.walk(written.anchor), written.anchor)


def _is_own(loops: LoopsOf, loop: ast.stmt, items: tuple[ast.Subscript, ...], types: tuple[str, ...]) -> bool:
    """Return whether nobody but the loop has what it writes to, and that is made with one of these types."""
    whole = items[0].value
    if isinstance(whole, ast.Attribute):
        values = values_of_own(loops, whole)
        return bool(values) and all(_is_new_tensor(place, value, types) for place, value in values)
    if not isinstance(whole, ast.Name) or whole.id in loops.arguments | loops.unfollowed:
        return False
    block = block_of(loops.source, loop)
    made = [each for each in block[: block.index(loop)] if isinstance(each, ast.Assign)]
    made = [each for each in made if each.targets == loops.stored(whole.id)]
    allowed = {id(each.value) for each in items} | {id(target) for each in made for target in each.targets}
    end = loop.end_lineno or loop.lineno
    others = [each for each in loops.named[whole.id] if id(each) not in allowed and each.lineno <= end]
    return len(made) == 1 and not others and _is_new_tensor(loops.source, made[0].value, types)


def _is_new_tensor(source: SourceFile, call: ast.expr, types: tuple[str, ...]) -> bool:
    """Return whether an expression makes a tensor by itself, of one of `types`, or of the default one."""
    if not isinstance(call, ast.Call):
        return False
    named = {each.arg: each.value for each in call.keywords}
    if source.names.dotted(call.func) not in _FILLED or named.keys() - {"dtype", "size", "fill_value"}:
        return False
    if "dtype" not in named:  # that of `full` is the one of its number
        return True
    name = source.names.dotted(named["dtype"]).removeprefix("torch.")
    return _SHORT.get(name, name) in types


# -- what is written --------------------------------------------------------------------------------------------


def _parts(node: ast.Subscript) -> list[ast.expr]:
    """Return the numbers that say which item is written."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _types(source: SourceFile, items: tuple[ast.Subscript, ...]) -> tuple[str, ...]:
    """Return the types that take all that is written as torch does; none where that is not sure."""
    types: tuple[str, ...] = _ALL
    for node in items:
        above = source.parents[node]
        taken: tuple[str, ...] = ()
        if isinstance(above, ast.AugAssign) and isinstance(above.op, ast.Add | ast.Sub):
            taken = _SIGNED if _whole(above.value) is not None else ()
        elif isinstance(above, ast.Assign) and above.targets == [node]:
            taken = _types_for(source, above.value)
        types = tuple(each for each in types if each in taken)
    return types


def _types_for(source: SourceFile, value: ast.expr) -> tuple[str, ...]:
    """Return the types that have a number, and have it alike in torch and NumPy."""
    if calls_builtin(source, value, ("float",)):
        return ("float64",)
    if isinstance(value, ast.Constant) and type(value.value) is bool:
        return _ALL
    whole = _whole(value)
    if whole is not None:
        return _ALL if whole >= 0 else _SIGNED
    operand = value.operand if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else value
    if isinstance(operand, ast.Constant) and type(operand.value) is float:
        return _FLOATS if operand.value == 0.0 or _RANGE[0] < operand.value < _RANGE[1] else ()
    return ()


def _whole(value: ast.expr) -> int | None:
    sign = -1 if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else 1
    operand = value.operand if isinstance(value, ast.UnaryOp) and sign < 0 else value
    if isinstance(operand, ast.Constant) and type(operand.value) is int and operand.value <= _LARGEST:
        return sign * operand.value
    return None
