"""Numbers written into a tensor one by one, in a loop: through its NumPy view, which is the same memory.

Each `x[i, j] = 1.0` is two operations of torch, of 2 to 4 us; an array's takes 0.1 us. What is written has the same
bits: NumPy converts a number to the array's type as torch does, or raises an error where torch would wrap it.
"""

import ast
from collections.abc import Iterator

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.called_functions import functions_at
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


def by_array(place: EditPlace) -> WrittenEdit:
    """Write `x[i, j] = number`, in the loops of the function and of those that the line calls, to `x.numpy()`."""
    for source, function in functions_at(place.project, place.source, place.statement):
        found = list(_filled(source, function))
        if found:
            changes = TextChanges(source)
            for made, writes in found:
                name = made.targets[0].id  # type: ignore[attr-defined]
                array = fresh_name(source, f"array_of_{name}")
                changes.after(made, f"{array} = {name}.numpy()  # the same memory")
                for write in writes:
                    changes.replace(_target(write).value, array)
            return WrittenEdit(changes.done(place.project), changed=1)
    return place.left("numbers written one by one into a tensor that torch.zeros or the like made are not found")


def _filled(source: SourceFile, scope: ast.AST) -> Iterator[tuple[ast.Assign, list[_Write]]]:
    """Yield statements that make a tensor, with the writes of its elements in loops behind them."""
    if not isinstance(scope, Function):
        return
    nodes = [node for node in ast.walk(scope) if source.scope(node) is scope]
    for made in nodes:
        if not isinstance(made, ast.Assign) or not _makes_tensor(source, made):
            continue
        name = made.targets[0].id  # type: ignore[attr-defined]
        writes = [node for node in nodes if _is_write(node, name) and _is_in_loop_behind(source, made, node)]
        if writes and not _is_moved(scope, name):
            yield made, writes  # type: ignore[misc]


def _makes_tensor(source: SourceFile, made: ast.Assign) -> bool:
    """Return whether a statement makes a tensor of the CPU by itself, of a type that arrays have."""
    call = made.value
    if len(made.targets) != 1 or not isinstance(made.targets[0], ast.Name) or not isinstance(call, ast.Call):
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
    of_name = isinstance(target, ast.Subscript) and _is_name(target.value, name)
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
