"""Batches put together in one call: one array before the tensor, `pad_sequence` in place of a loop over rows.

The script asks whether it has a list of plain arrays of one type and shape, or rows in one dimension that fill the
padded tensor; all else goes the way it is written.
"""

import ast
from collections.abc import Callable

from flatout.edits.cures.asked_forms import name_of_module, unasked
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, loads
from flatout.edits.reading.dataflow import pairs
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["in_one_array", "padded_at_once"]

_TENSOR = ("torch.tensor", "torch.as_tensor")
_FLOATS = ("float32", "float64")
_WHOLE = ("int32", "int16", "int8", "uint8", "bool_")
_PADDED = ("float32", "float", "float64", "double", "int64", "long", "int32", "int")
_MOST = 1 << 24  # of what is filled in: `pad_sequence` takes it as a float


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
    types = _types_for(place, named.get("dtype"))
    if not types:
        return place.left("into numbers of that type, arrays go another way than their numbers do")
    against = unasked(place, call, shown=False, uses=("all", "list", "type"))
    if against:
        return place.left(against)
    numpy, changes = name_of_module(place, "numpy"), TextChanges(place.source)
    kinds = ", ".join(f"{numpy}.{each}" for each in types)
    alike = f"type(each) is {numpy}.ndarray and each.dtype == rows[0].dtype and each.shape == rows[0].shape"
    when = (
        f"type(rows) is list and rows and all({alike} for each in rows)"
        f" and rows[0].ndim and rows[0].dtype in ({kinds}{',' if len(types) == 1 else ''})"
    )
    torch, stacked = name_of_module(place, "torch"), f"{numpy}.stack(rows)"
    if names.dotted(call.func) == "torch.as_tensor":  # which shares the memory of an array, and copies a list
        stacked = f"{torch}.tensor({stacked})"
    changes.replace(call.args[0], f"(lambda rows: {stacked} if {when} else rows)({changes.text(call.args[0])})")
    project, at = changes.done(place.project), place.project.sources.index(place.source)
    for module in {"torch", "numpy"} & {torch, numpy}:
        project = with_import(project, at, module)
    return WrittenEdit(project, changed=1)


def _types_for(place: EditPlace, dtype: ast.expr | None) -> tuple[str, ...]:
    """Return the types of arrays that become a tensor of a type as their numbers do, one by one, without an error."""
    if dtype is None:
        return (*_FLOATS, *_WHOLE, "int64")
    name = place.source.names.dotted(dtype).removeprefix("torch.")
    if name in ("float64", "double"):
        return (*_FLOATS, *_WHOLE, "int64")
    if name in ("float32", "float"):
        return (*_FLOATS, *_WHOLE)  # numbers of 64 bits are rounded to those of float64 before
    return (*_WHOLE, "int64") if name in ("int64", "long") else ()


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
    sizes, padding = made
    if (
        len(sizes) != 2
        or ast.unparse(sizes[0]) != f"len({ast.unparse(rows)})"
        or not _is_longest(place, sizes[1], rows)
    ):
        return place.left(f"{name} may have more rows, or wider ones, than are put into it")
    if not isinstance(rows, ast.Name) or _is_read_elsewhere(place, loop):
        return place.left("the rows have no name, or the names of the loop are read elsewhere")
    against = unasked(place, loop, shown=False, uses=("all", "enumerate", "len", "list", "map", "max", "tuple", "type"))
    if against:
        return place.left(against)
    return _with_rows_padded(place, loop, rows.id, name, value, padding)


def _with_rows_padded(
    place: EditPlace, loop: ast.For, rows: str, name: str, value: ast.expr, padding: str
) -> WrittenEdit:
    """Put the loop under the question whether it does what `pad_sequence` does."""
    source, changes, torch = place.source, TextChanges(place.source), name_of_module(place, "torch")
    row, made = changes.text(loop.target.elts[1]), fresh_name(place.source, f"rows_of_{name}")  # type: ignore[attr-defined]
    of_array = ast.unparse(value).startswith("torch.from_numpy")
    numpy = name_of_module(place, "numpy") if of_array else ""
    kind = f"is {numpy}.ndarray" if of_array else f"is {torch}.Tensor"
    kind = "in (list, tuple)" if isinstance(value, ast.Call) and not of_array else kind
    alike = (
        f"each.dim() == 1 and not each.is_complex() and each.layout is {torch}.strided"
        f" and each.device == {name}.device for each in {made}"
    )
    more = "" if padding == "0" else f", padding_value={padding}"
    cast = f"[each.to({name}.dtype) for each in {made}]"
    changes.before(
        loop,
        f"{made} = []",
        f"if type({rows}) in (list, tuple) and all(type(each) {kind} for each in {rows}):",
        f"    {made} = [{changes.text(value)} for {row} in {rows}]",
        f"if {made} and all({alike}) and {name}.shape == (len({made}), max(map(len, {made}))):",
        f"    {name} = {torch}.nn.utils.rnn.pad_sequence({cast}, batch_first=True{more})",
    )
    changes.indented(loop, "else:")
    at, project = place.project.sources.index(source), changes.done(place.project)
    for module in {"torch", "numpy"} & {torch, numpy}:
        project = with_import(project, at, module)
    return WrittenEdit(project, changed=1)


def _is_read_elsewhere(place: EditPlace, loop: ast.For) -> bool:
    """Return whether a name that the loop binds is used outside of it, anywhere in the file."""
    inside = {*ast.walk(loop)}
    names = {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}
    scope = place.source.scope(loop)
    for node in ast.walk(place.source.tree):
        if isinstance(node, ast.Global | ast.Nonlocal) and names & {*node.names}:
            return True
        if isinstance(node, ast.Name) and node.id in names and node not in inside:
            other = place.source.scope(node)
            is_own = other is scope and not any(_binds(each, node.id) for each in place.source.above(node))
            if is_own or (other is not scope and scope in [*place.source.above(other)]):
                return True
    return False


def _binds(node: ast.AST, name: str) -> bool:
    """Return whether a comprehension gives a name a value of its own."""
    made = isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
    targets = [each.target for each in node.generators] if made else []  # type: ignore[attr-defined]
    return any(_is(each, name) for target in targets for each in ast.walk(target))


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


def _made(place: EditPlace, loop: ast.For, name: str) -> tuple[list[ast.expr], str] | None:
    """Return what the line that makes the padded tensor says: its sizes, and what it is filled with."""
    block = block_of(place.source, loop)
    for statement in reversed(block[: block.index(loop)]):
        assigned = isinstance(statement, ast.Assign) and [ast.unparse(each) for each in statement.targets] == [name]
        if assigned and isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            return _made_by(place, statement.value)
        if name in loads([statement]):
            return None
    return None


def _made_by(place: EditPlace, call: ast.Call) -> tuple[list[ast.expr], str] | None:
    maker = place.source.names.dotted(call.func)
    named = {each.arg: each.value for each in call.keywords}
    dtype = place.source.names.dotted(named["dtype"]).removeprefix("torch.") if "dtype" in named else "float32"
    args = [each.elts if isinstance(each, ast.Tuple) else [each] for each in call.args]
    if maker == "torch.full" and "dtype" in named and len(args) == 2:
        padding = ast.unparse(call.args[1])
    elif maker == "torch.zeros" and args:
        padding = "0"
    else:
        return None
    if (
        named.keys() - {"dtype"}
        or dtype not in _PADDED
        or not _is_number(padding, whole=dtype in ("int64", "long", "int32", "int"))
    ):
        return None
    sizes = args[0] if maker == "torch.full" else [each for some in args for each in some]
    return sizes, padding


def _is_number(text: str, *, whole: bool) -> bool:
    """Return whether a text is a number that a float of 32 bits has, nearly at least; a whole one where asked for."""
    digits = text.lstrip("-")
    plain = digits.isdigit() if whole else digits.replace(".", "", 1).isdigit()
    return plain and float(digits) <= _MOST


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
