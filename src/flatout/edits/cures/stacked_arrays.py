"""Batches put together in one call: one array before the tensor, `pad_sequence` in place of a loop over rows."""

import ast
from collections.abc import Callable

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, loads
from flatout.edits.reading.dataflow import pairs
from flatout.edits.text_changes import TextChanges, operand
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["in_one_array", "padded_at_once"]

_TENSOR = ("torch.tensor", "torch.as_tensor")


# -- one array --------------------------------------------------------------------------------------------------------


def in_one_array(place: EditPlace) -> WrittenEdit:
    """Make one array of a list of arrays before `torch.tensor` takes it, which goes number by number."""
    names = place.source.names
    calls = [each for each in ast.walk(place.statement) if isinstance(each, ast.Call)]
    calls = [each for each in calls if names.dotted(each.func) in _TENSOR and len(each.args) == 1]
    if len(calls) != 1:
        return place.left("a single torch.tensor(...) of a list is not found on this line")
    call = calls[0]
    named = {each.arg: each.value for each in call.keywords}
    if named.keys() - {"dtype", "device"}:
        return place.left("torch.tensor is given more than values, dtype and device")
    if not _is_of_arrays(place, call.args[0]):
        return place.left(f"{ast.unparse(call.args[0])} may not be a list of arrays: their types would differ")
    changes = TextChanges(place.source)
    array = next((name for name, dotted in names.imports.items() if dotted == "numpy"), "numpy")
    changes.replace(call.args[0], f"{array}.stack({changes.text(call.args[0])})")
    project, at = changes.done(place.project), place.project.sources.index(place.source)
    return WrittenEdit(with_import(project, at, "numpy") if array == "numpy" else project, changed=1)


def _is_of_arrays(place: EditPlace, node: ast.expr) -> bool:
    """Return whether an expression is a list whose items are made by numpy."""
    if isinstance(node, ast.List):
        return bool(node.elts) and all(_is_array(place, each) for each in node.elts)
    if isinstance(node, ast.ListComp):
        return _is_array(place, node.elt)
    if not isinstance(node, ast.Name):
        return False
    scope = place.source.scope(place.statement)
    nodes = [each for each in ast.walk(scope) if place.source.scope(each) is scope]
    bound = [value for each in nodes for target, value in pairs(each) if _is(target, node.id)]
    added = [
        each.args[0]
        for each in nodes
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and _is(each.func.value, node.id)
        if each.func.attr == "append" and len(each.args) == 1
    ]
    stored = sum(_is(each, node.id) and isinstance(each.ctx, ast.Store) for each in nodes)  # type: ignore[attr-defined]
    if stored != len(bound) or not bound:
        return False
    empty = [each for each in bound if isinstance(each, ast.List) and not each.elts]
    others = [each for each in bound if each not in empty]
    return bool(added or others) and all(map(_of(place), others)) and all(_is_array(place, each) for each in added)


def _of(place: EditPlace) -> Callable[[ast.expr], bool]:
    return lambda node: not isinstance(node, ast.Name) and _is_of_arrays(place, node)


def _is_array(place: EditPlace, node: ast.expr) -> bool:
    """Return whether numpy makes a value: by a function of its own that gives arrays, or `.numpy()`."""
    if isinstance(node, ast.Name):
        scope = place.source.scope(place.statement)
        bound = [value for each in ast.walk(scope) for target, value in pairs(each) if _is(target, node.id)]
        return bool(bound) and all(not isinstance(each, ast.Name) and _is_array(place, each) for each in bound)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("numpy", "astype"):
        return True
    dotted = place.source.names.dotted(node.func)
    return dotted.startswith("numpy.") and dotted.rpartition(".")[2] in (
        "array", "asarray", "pad", "concatenate", "stack", "zeros", "ones", "full", "transpose", "load", "arange",
    )  # fmt: skip


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


# -- padding ----------------------------------------------------------------------------------------------------------


def padded_at_once(place: EditPlace) -> WrittenEdit:
    """Write a loop that fills rows of one padded tensor as `pad_sequence`."""
    around = (place.statement, *place.source.above(place.statement))
    loop = next((each for each in around if isinstance(each, ast.For)), None)
    filled = _filled(loop) if loop is not None else None
    if loop is None or filled is None:
        return place.left("a loop that does nothing but fill rows, padded[i, :len(row)] = row, is not found here")
    name, rows, value = filled
    made = _made(place, loop, name)
    if made is None:
        return place.left(f"no line above the loop makes {name} of one kind of number, by torch.zeros or torch.full")
    statement, sizes, padding, dtype = made
    if (
        len(sizes) != 2
        or ast.unparse(sizes[0]) != f"len({ast.unparse(rows)})"
        or not _is_longest(place, sizes[1], rows)
    ):
        return place.left(f"{name} may have more rows, or wider ones, than are put into it")
    changes = TextChanges(place.source)
    target = changes.text(loop.target.elts[1])  # type: ignore[attr-defined]
    made_rows = f"[{operand(changes, value)}.to({dtype}) for {target} in {changes.text(rows)}]"
    more = "" if padding == "0" else f", padding_value={padding}"
    text = f"{name} = torch.nn.utils.rnn.pad_sequence({made_rows}, batch_first=True{more})"
    changes.remove(statement)
    changes.replace(loop, text)
    at = place.project.sources.index(place.source)
    return WrittenEdit(with_import(changes.done(place.project), at, "torch"), changed=1)


def _filled(loop: ast.For) -> tuple[str, ast.expr, ast.expr] | None:
    """Return what `for i, row in enumerate(rows): name[i, :len(row)] = value` fills, from what, with what."""
    target, only = loop.target, loop.body[0]
    pair = isinstance(target, ast.Tuple) and len(target.elts) == 2 and all(isinstance(e, ast.Name) for e in target.elts)
    numbered = (
        isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "enumerate" and len(loop.iter.args) == 1
    )
    if (
        not (pair and numbered and isinstance(only, ast.Assign))
        or loop.orelse
        or len(loop.body) + len(only.targets) != 2
    ):
        return None
    place, row = only.targets[0], ast.unparse(target.elts[1])  # type: ignore[attr-defined]
    if not isinstance(place, ast.Subscript) or not isinstance(place.value, ast.Name):
        return None
    number = ast.unparse(target.elts[0])  # type: ignore[attr-defined]
    lengths = (f"len({row})", f"{row}.shape[0]", f"{row}.size(0)")
    written = {f"({number}, :{length})" for length in lengths} | {f"{number}, :{length}" for length in lengths}
    tensor = ast.unparse(only.value) in (
        row,
        f"torch.tensor({row})",
        f"torch.as_tensor({row})",
        f"torch.from_numpy({row})",
    )
    if ast.unparse(place.slice) not in written or not tensor or loads([only.value]) & {number, place.value.id}:
        return None
    return place.value.id, loop.iter.args[0], only.value  # type: ignore[attr-defined]


def _made(place: EditPlace, loop: ast.For, name: str) -> tuple[ast.stmt, list[ast.expr], str, str] | None:
    """Return the line that makes the padded tensor: the statement, its sizes, what it is filled with, and its type."""
    block = block_of(place.source, loop)
    for statement in reversed(block[: block.index(loop)]):
        assigned = isinstance(statement, ast.Assign) and [ast.unparse(each) for each in statement.targets] == [name]
        if assigned and isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            return _made_by(place, statement, statement.value)
        if name in loads([statement]):
            return None
    return None


def _made_by(place: EditPlace, statement: ast.stmt, call: ast.Call) -> tuple[ast.stmt, list[ast.expr], str, str] | None:
    maker = place.source.names.dotted(call.func)
    named = {each.arg: ast.unparse(each.value) for each in call.keywords}
    args = [each.elts if isinstance(each, ast.Tuple) else [each] for each in call.args]
    if maker == "torch.full" and "dtype" in named and len(args) == 2:
        padding = ast.unparse(call.args[1])
    elif maker == "torch.zeros" and args:
        padding = "0"
    else:
        return None
    if named.keys() - {"dtype"} or (padding != "0" and not _is_number(padding)):
        return None
    sizes = args[0] if maker == "torch.full" else [each for some in args for each in some]
    return statement, sizes, padding, named.get("dtype", "torch.get_default_dtype()")


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()


def _is_longest(place: EditPlace, width: ast.expr, rows: ast.expr) -> bool:
    """Return whether a width is the length of the longest row."""
    values = [width]
    if isinstance(width, ast.Name):
        scope = place.source.scope(place.statement)
        values = [value for each in ast.walk(scope) for target, value in pairs(each) if _is(target, width.id)]
    return bool(values) and all(_says_longest(each, ast.unparse(rows)) for each in values)


def _says_longest(node: ast.expr, rows: str) -> bool:
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "max" or len(node.args) != 1 or node.keywords:
        return False
    inner = node.args[0]
    if isinstance(inner, ast.GeneratorExp | ast.ListComp) and len(inner.generators) == 1:
        walked, row = inner.generators[0], ast.unparse(inner.generators[0].target)
        lengths = (f"len({row})", f"{row}.shape[0]", f"{row}.size(0)")
        return not walked.ifs and ast.unparse(walked.iter) == rows and ast.unparse(inner.elt) in lengths
    return ast.unparse(inner) == f"map(len, {rows})"
