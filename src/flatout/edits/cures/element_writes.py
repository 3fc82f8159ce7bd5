"""Numbers written into a tensor one by one, in a loop: through its NumPy view, which is the same memory.

Each `x[i, j] = 1.0` is two operations of torch, of 2 to 4 us; an array's takes 0.1 us. Those that the loop reads one by
one become plain numbers at the same time (`element_reads`). The view is made before the outermost loop, which calls
nothing that may give the tensor other memory or another shape. What is written are numbers in sight, or what `float` or
`int` returns: they have the same bits in an array of these types. Loops in functions that catch errors are left, since
NumPy raises other ones.
"""

import ast
from collections.abc import Iterator, Sequence

from flatout.edits.cures.element_reads import as_numbers
from flatout.edits.cures.item_reads import is_known
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.called_functions import functions_at
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["by_array"]

_FILLED = frozenset(f"torch.{name}" for name in ("zeros", "ones", "full", "empty"))
_OF_ARRAYS = frozenset(
    f"torch.{name}"
    for name in (
        "float",
        "float32",
        "double",
        "float64",
        "bool",
        "uint8",
        "int8",
        "int16",
        "int",
        "int32",
        "long",
        "int64",
    )
)
_LARGEST = 127  # whole number that every one of these types has
_Write = ast.Assign | ast.AugAssign
_Found = tuple[ast.stmt, str, list[_Write]]
"""What makes a tensor, or the loop that writes to it, the tensor as it is named, and the writes."""


def by_array(place: EditPlace) -> WrittenEdit:
    """Write `x[i, j] = number`, in the loops of the function and of those that the line calls, to `x.numpy()`."""
    for source, function in functions_at(place.project, place.source, place.statement):
        changes = TextChanges(source)
        found = list(_written(place.project, source, function))
        for loop, whole, writes in found:
            array = fresh_name(source, f"array_of_{whole.rpartition('.')[2]}")
            changes.before(loop, f"{array} = {whole}.numpy()  # the same memory")
            for write in writes:
                changes.replace(_target(write).value, array)
        own = function is place.source.scope(place.statement)
        if as_numbers(source, function, changes, certain=own) or found:
            return WrittenEdit(changes.done(place.project), changed=1)
    return place.left("elements of a tensor that are read or written one by one, in a loop, are not found")


def _written(project: Project, source: SourceFile, scope: ast.AST) -> Iterator[_Found]:
    """Yield outermost loops that write elements of a tensor, with its name and the writes."""
    if not isinstance(scope, Function) or any(isinstance(node, ast.Try) for node in ast.walk(scope)):
        return
    nodes = [node for node in ast.walk(scope) if source.scope(node) is scope]
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    for loop in (loop for loop in loops if not any(above in loops for above in source.above(loop))):
        inside = [*ast.walk(loop)]
        stored = {ast.unparse(node.value) for node in inside if isinstance(node, ast.Subscript)}
        for whole in sorted(stored):
            writes = [node for node in inside if _is_write(node, whole)]
            if writes and _is_plain(project, source, scope, loop, _target(writes[0]).value) and _stays(inside, whole):  # type: ignore[arg-type]
                yield loop, whole, writes  # type: ignore[misc]


def _is_plain(project: Project, source: SourceFile, scope: ast.AST, loop: ast.stmt, whole: ast.expr) -> bool:
    """Return whether a name or attribute is set to nothing but tensors of the CPU, of types that arrays have."""
    if isinstance(whole, ast.Attribute):
        values = attribute_values(project, source, whole)
        stores = [each for _, each in project.nodes(ast.Attribute) if each.attr == whole.attr and _is_set(each)]
        return len(stores) == len(values) > 0 and all(_is_new_tensor(place, value) for place, value in values)
    if not isinstance(whole, ast.Name) or not isinstance(scope, Function):
        return False
    stored = [node for node in ast.walk(scope) if _is_name(node, whole.id) and not isinstance(node.ctx, ast.Load)]  # type: ignore[attr-defined]
    made = [each for each in block_of(source, loop) if isinstance(each, ast.Assign) and each.targets == stored]
    return len(made) == 1 and made[0].lineno < loop.lineno and _is_new_tensor(source, made[0].value)


def _is_set(node: ast.Attribute) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _stays(inside: Sequence[ast.AST], whole: str) -> bool:
    """Return whether a tensor keeps its memory and its shape in a loop: nothing is called that is not known."""
    for node in inside:
        if isinstance(node, ast.Attribute) and ast.unparse(node) == whole and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, ast.Call) and not is_known(node):
            return False
        if isinstance(node, Function | ast.Lambda | ast.ClassDef | ast.Yield | ast.YieldFrom | ast.Await | ast.With):
            return False
    return True


def _is_new_tensor(source: SourceFile, call: ast.expr) -> bool:
    if not isinstance(call, ast.Call):
        return False
    named = {each.arg: each.value for each in call.keywords}
    if source.names.dotted(call.func) not in _FILLED or named.keys() - {"dtype", "size", "fill_value"}:
        return False
    return "dtype" not in named or source.names.dotted(named["dtype"]) in _OF_ARRAYS


def _target(write: _Write) -> ast.Subscript:
    target = write.target if isinstance(write, ast.AugAssign) else write.targets[0]
    assert isinstance(target, ast.Subscript)
    return target


def _is_write(node: ast.AST, name: str) -> bool:
    """Return whether a statement writes a number, as far as it can be seen, to a place in what has that name."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        target: ast.expr = node.target
        if not _is_whole(node.value):  # 0.1 may be rounded in another way
            return False
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_number(node.value):
        target = node.targets[0]
    else:
        return False
    if not isinstance(target, ast.Subscript) or ast.unparse(target.value) != name:
        return False
    return not any(isinstance(each, ast.Slice | ast.Starred) for each in ast.walk(target.slice))


def _is_number(value: ast.expr) -> bool:
    """Return whether a value is a number in sight, or what `float` or `int` makes one of."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "float"
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return isinstance(value.operand, ast.Constant) and type(value.operand.value) is float
    return _is_whole(value) or (isinstance(value, ast.Constant) and type(value.value) in (float, bool))


def _is_whole(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and value.value <= _LARGEST


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
