"""Numbers written into a tensor one by one, in a loop: through its NumPy view, which is the same memory.

Those that the loop reads one by one become plain numbers at the same time (`element_reads`).

Each `x[i, j] = 1.0` is two operations of torch, of 2 to 4 us; an array's takes 0.1 us. What is written has the same
bits: NumPy converts a number to the array's type as torch does, or raises an error where torch would wrap it.
"""

import ast
from collections.abc import Iterator, Sequence

from flatout.edits.cures.element_reads import as_numbers
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.called_functions import functions_at
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["by_array"]

_FILLED = frozenset(f"torch.{name}" for name in ("zeros", "ones", "full", "empty"))
_OF_ARRAYS = frozenset(
    f"torch.{name}"
    for name in ("float", "float32", "double", "float64", "half", "float16", "bool", "uint8", "int8", "short", "int16")
) | {"torch.int", "torch.int32", "torch.long", "torch.int64"}
_MOVES = frozenset({"data", "pin_memory", "requires_grad", "requires_grad_", "resize_", "set_", "share_memory_"})
_Write = ast.Assign | ast.AugAssign
_Found = tuple[ast.stmt, str, list[_Write]]
"""What makes a tensor, or the loop that writes to it, the tensor as it is named, and the writes."""


def by_array(place: EditPlace) -> WrittenEdit:
    """Write `x[i, j] = number`, in the loops of the function and of those that the line calls, to `x.numpy()`."""
    for source, function in functions_at(place.project, place.source, place.statement):
        changes = TextChanges(source)
        found = [*_filled(source, function), *_kept(place.project, source, function)]
        for made, whole, writes in found:
            array = fresh_name(source, f"array_of_{whole.rpartition('.')[2]}")
            line = f"{array} = {whole}.numpy()  # the same memory"
            (changes.after if isinstance(made, ast.Assign) else changes.before)(made, line)
            for write in writes:
                changes.replace(_target(write).value, array)
        own = function is place.source.scope(place.statement)
        if as_numbers(source, function, changes, certain=own) or found:
            return WrittenEdit(changes.done(place.project), changed=1)
    return place.left("elements of a tensor that are read or written one by one, in a loop, are not found")


def _filled(source: SourceFile, scope: ast.AST) -> Iterator[_Found]:
    """Yield statements that make a tensor, with its name and the writes of its elements in loops behind them."""
    if not isinstance(scope, Function):
        return
    nodes = [node for node in ast.walk(scope) if source.scope(node) is scope]
    for made in nodes:
        if not isinstance(made, ast.Assign) or not _makes_tensor(source, made):
            continue
        name = made.targets[0].id  # type: ignore[attr-defined]
        writes = [node for node in nodes if _is_write(node, name) and _is_in_loop_behind(source, made, node)]
        if writes and not _is_moved(scope, name):
            yield made, name, writes  # type: ignore[misc]


def _kept(project: Project, source: SourceFile, scope: ast.AST) -> Iterator[_Found]:
    """Yield loops that write elements of a tensor that is an attribute, with its name and the writes."""
    if not isinstance(scope, Function):
        return
    nodes = [node for node in ast.walk(scope) if source.scope(node) is scope]
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    loops = [loop for loop in loops if not any(above in loops for above in source.above(loop))]
    for loop in loops:
        inside = [*ast.walk(loop)]
        written = {ast.unparse(node.value) for node in inside if isinstance(node, ast.Subscript)}
        for whole in sorted(name for name in written if name.startswith("self.") and name.count(".") == 1):
            writes = [node for node in inside if _is_write(node, whole)]
            if writes and _is_plain(project, source, _target(writes[0]).value) and _stays(inside, whole):  # type: ignore[arg-type]
                yield loop, whole, writes  # type: ignore[misc]


def _is_plain(project: Project, source: SourceFile, attribute: ast.expr) -> bool:
    """Return whether an attribute is set to nothing but tensors of the CPU, of types that arrays have."""
    values = attribute_values(project, source, attribute)
    return bool(values) and all(_is_new_tensor(place, value) for place, value in values)


def _stays(inside: Sequence[ast.AST], whole: str) -> bool:
    """Return whether an attribute is not set in a loop, nor a method called that may set it or move its tensor."""
    for node in inside:
        if isinstance(node, ast.Attribute) and ast.unparse(node) == whole and not isinstance(node.ctx, ast.Load):
            return False
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == whole and node.attr in _MOVES:
            return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_name(node.func.value, "self"):
            return False
    return True


def _makes_tensor(source: SourceFile, made: ast.Assign) -> bool:
    """Return whether a statement makes a tensor of the CPU by itself, of a type that arrays have."""
    return len(made.targets) == 1 and isinstance(made.targets[0], ast.Name) and _is_new_tensor(source, made.value)


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
    target: ast.expr
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        target, value = node.target, node.value
        if not isinstance(value, ast.Constant) or type(value.value) is not int:  # 0.1 may be rounded in another way
            return False
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    else:
        return False
    of_name = isinstance(target, ast.Subscript) and ast.unparse(target.value) == name
    return of_name and not isinstance(value, ast.List | ast.Tuple | ast.ListComp)


def _is_in_loop_behind(source: SourceFile, made: ast.Assign, write: ast.AST) -> bool:
    """Return whether a write stands in a loop that comes after the tensor is made, in its block or further in."""
    block = source.parents[made]
    inner: ast.AST = write
    loops = False
    for above in source.above(write):
        if above is block:
            return loops and getattr(inner, "lineno", 0) > (made.end_lineno or made.lineno)
        if isinstance(above, Function | ast.Lambda):
            return False
        loops |= isinstance(above, ast.For | ast.While)
        inner = above
    return False


def _is_moved(scope: ast.AST, name: str) -> bool:
    """Return whether the name is bound again, or its tensor may get other memory, or gradients."""
    stored = 0
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store | ast.Del):
            stored += 1
        elif isinstance(node, ast.Global | ast.Nonlocal):
            stored += 2 * (name in node.names)
        elif isinstance(node, ast.Attribute) and _is_name(node.value, name):
            stored += 2 * (node.attr in _MOVES)
    return stored > 1


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
