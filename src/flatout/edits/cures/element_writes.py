"""Numbers written into a tensor one by one, in a loop: through its NumPy view, which is the same memory.

Each `x[i, j] = 1.0` is two operations of torch, of 2 to 4 us; an array's takes 0.1 us. Those that the loop reads one by
one become plain numbers at the same time (`element_reads`). The view is made before the outermost loop, which calls
nothing that may give the tensor other memory or another shape. What is written are numbers in sight, or what `float`
returns: they have the same bits in an array of these types. Loops in functions that catch errors are left, since
NumPy raises other ones.
"""

import ast
from collections.abc import Container, Iterator, Sequence

from flatout.edits.cures.element_reads import as_numbers
from flatout.edits.cures.item_reads import LoopsOf, is_known
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.called_functions import functions_at
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["by_array"]

_FILLED = frozenset(f"torch.{name}" for name in ("zeros", "ones", "full", "empty"))
_FLOATS = frozenset({"torch.float", "torch.float32", "torch.double", "torch.float64"})
_WHOLES = frozenset(f"torch.{name}" for name in ("bool", "uint8", "int8", "int16", "int", "int32", "long", "int64"))
_LARGEST = 127  # whole number that every one of these types has
_Write = ast.Assign | ast.AugAssign
_Found = tuple[ast.stmt, str, list[_Write]]
"""A loop that writes to a tensor, the tensor as it is named, and the writes."""


def by_array(place: EditPlace) -> WrittenEdit:
    """Write `x[i, j] = number`, in the loops of the function and of those that the line calls, to `x.numpy()`."""
    for source, scope in functions_at(place.project, place.source, place.statement):
        if not isinstance(scope, Function) or any(isinstance(node, ast.Try) for node in ast.walk(scope)):
            continue
        loops, changes = LoopsOf(place.project, source, scope), TextChanges(source)
        found = list(_written(loops))
        for loop, whole, writes in found:
            array = fresh_name(source, f"array_of_{whole.rpartition('.')[2]}")
            changes.before(loop, f"{array} = {whole}.numpy()  # the same memory")
            for write in writes:
                changes.replace(_target(write).value, array)
        own = scope is place.source.scope(place.statement)
        if as_numbers(loops, changes, certain=own) or found:
            return WrittenEdit(changes.done(place.project), changed=1)
    return place.left("elements of a tensor that are read or written one by one, in a loop, are not found")


def _written(loops: LoopsOf) -> Iterator[_Found]:
    """Yield outermost loops that write elements of a tensor, with its name and the writes."""
    source, scope = loops.source, loops.scope
    all_ = [node for node in ast.walk(scope) if isinstance(node, ast.For | ast.While) and source.scope(node) is scope]
    for loop in (loop for loop in all_ if not any(above in all_ for above in source.above(loop))):
        inside = [*ast.walk(loop)]
        for whole in sorted({ast.unparse(node.value) for node in inside if isinstance(node, ast.Subscript)}):
            writes = [node for node in inside if isinstance(node, _Write) and _is_write(loops.source, node, whole)]
            if writes and _is_plain(loops, loop, writes) and _stays(loops, inside, whole):
                yield loop, whole, writes


def _is_plain(loops: LoopsOf, loop: ast.stmt, writes: list[_Write]) -> bool:
    """Return whether what is written to is nothing but tensors of the CPU, of types that take the numbers alike."""
    whole = _target(writes[0]).value
    wanted = _FLOATS if any(isinstance(write.value, ast.Call) for write in writes) else _FLOATS | _WHOLES
    if isinstance(whole, ast.Attribute):
        values = attribute_values(loops.project, loops.source, whole)
        named = [node for _, node in loops.project.nodes(ast.Attribute) if node.attr == whole.attr]
        num_set = sum(not isinstance(node.ctx, ast.Load) for node in named)
        return num_set == len(values) > 0 and all(_is_new_tensor(place, value, wanted) for place, value in values)
    if not isinstance(whole, ast.Name):
        return False
    named = [node for node in ast.walk(loops.scope) if isinstance(node, ast.Name) and node.id == whole.id]
    stored: list[ast.expr] = [node for node in named if not isinstance(node.ctx, ast.Load)]
    made = [each for each in block_of(loops.source, loop) if isinstance(each, ast.Assign) and each.targets == stored]
    return len(made) == 1 and made[0].lineno < loop.lineno and _is_new_tensor(loops.source, made[0].value, wanted)


def _stays(loops: LoopsOf, inside: Sequence[ast.AST], whole: str) -> bool:
    """Return whether a tensor keeps its memory and its shape in a loop: nothing is called that is not known."""
    for node in inside:
        if isinstance(node, ast.Attribute) and ast.unparse(node) == whole and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, ast.Call) and not is_known(loops, node):
            return False
        if isinstance(node, Function | ast.Lambda | ast.ClassDef | ast.Yield | ast.YieldFrom | ast.Await | ast.With):
            return False
    return True


def _is_new_tensor(source: SourceFile, call: ast.expr, types: Container[str]) -> bool:
    """Return whether an expression makes a tensor by itself, of one of `types`, or of the default one."""
    if not isinstance(call, ast.Call):
        return False
    named = {each.arg: each.value for each in call.keywords}
    if source.names.dotted(call.func) not in _FILLED or named.keys() - {"dtype", "size", "fill_value"}:
        return False
    if "dtype" not in named:  # that of `full` is the one of its number
        last = call.args[-1] if call.args else call
        of_float = any(isinstance(each, ast.Constant) and type(each.value) is float for each in ast.walk(last))
        return of_float or source.names.dotted(call.func) != "torch.full" or "torch.int64" in types
    return source.names.dotted(named["dtype"]) in types


def _target(write: _Write) -> ast.Subscript:
    target = write.target if isinstance(write, ast.AugAssign) else write.targets[0]
    assert isinstance(target, ast.Subscript)
    return target


def _is_write(source: SourceFile, node: _Write, name: str) -> bool:
    """Return whether a statement writes a number, as far as it can be seen, to a place in what has that name."""
    target: ast.expr
    if isinstance(node, ast.AugAssign):
        target, counts = node.target, isinstance(node.op, ast.Add | ast.Sub) and _is_whole(node.value)
    else:
        target, counts = node.targets[0], len(node.targets) == 1 and _is_number(source, node.value)
    if not counts or not isinstance(target, ast.Subscript) or ast.unparse(target.value) != name:
        return False
    return not any(isinstance(each, ast.Slice | ast.Starred) for each in ast.walk(target.slice))


def _is_number(source: SourceFile, value: ast.expr) -> bool:
    """Return whether a value is a number in sight, or what `float` returns."""
    if isinstance(value, ast.Call):
        return is_builtin(source, value.func, ("float",))
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return isinstance(value.operand, ast.Constant) and type(value.operand.value) is float
    return _is_whole(value) or (isinstance(value, ast.Constant) and type(value.value) in (float, bool))


def _is_whole(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and value.value <= _LARGEST
