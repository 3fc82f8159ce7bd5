"""Parts of a tensor, in forms whose gradients are made at once: rows by `index_select`, slices by one `unbind`."""

import ast

from flatout.edits.cures.asked_forms import AskedForm, asked_form, unasked
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import is_plain, stores
from flatout.edits.reading.purity.computed_uses import only_computed
from flatout.edits.reading.purity.own_meanings import own_operator
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit

__all__ = ["by_rows", "cut_once"]


# -- rows -------------------------------------------------------------------------------------------------------------


def by_rows(place: EditPlace) -> WrittenEdit:
    """Write `x[rows]` as `index_select`, negative rows counted from the end, where rows are numbers in a tensor."""
    if not str(place.finding.argument("node")).startswith("IndexBackward"):
        return place.left("its backward pass is not that of an index")
    found = [
        node
        for node in ast.walk(place.statement)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
        if is_plain(node.value) and is_plain(node.slice)
    ]
    if len(found) != 1:
        return place.left("a single index x[rows], of a name by a name, is not found on this line")
    against = unasked(place, found[0])
    if against:
        return place.left(against)
    asked = asked_form(place, found[0], {"x": found[0].value, "rows": found[0].slice})
    (x, rows), torch = asked.names, asked.torch
    when = (
        f"{asked.is_tensor(x)} and type({rows}) is {torch}.Tensor and {x}.dim() and {rows}.dim()"
        f" and {x}.layout is {torch}.strided and {rows}.dtype is {torch}.int64 and {rows}.device == {x}.device"
    )
    wrapped = f"{rows}.where({rows} >= 0, {rows} + {x}.size(0))"
    return asked.put(place, when, f"{x}.index_select(0, {wrapped}.flatten()).unflatten(0, {rows}.shape)")


# -- slices in a loop -------------------------------------------------------------------------------------------------


def cut_once(place: EditPlace) -> WrittenEdit:
    """Write `x[:, t]`, in a loop over `t`, as an item of `x.unbind(1)`, which the first turn makes."""
    if not str(place.finding.argument("node")).startswith("SelectBackward"):
        return place.left("its backward pass is not that of parts that are cut out")
    loop = _loop(place)
    if loop is None:
        return place.left("no loop `for t in range(...)` is around this line")
    turn, body = loop
    cuts = [each for node in ast.walk(place.statement) if (each := _cut(node, turn)) is not None]
    wholes = {(ast.unparse(node.value), dim) for node, dim, _ in cuts}
    if len(wholes) != 1:
        return place.left(f"parts x[..., {turn}] of a single tensor are not found on this line")
    whole, dim = wholes.pop()
    if _changes(body, whole):
        return place.left(f"{whole} is changed in the loop")
    against = next(filter(None, (unasked(place, node, compiled=True) for node, _, _ in cuts)), "") or own_operator(
        place.project
    )
    if against:
        return place.left(against)
    if "forward_pre_hook" in place.project.mentions or not all(
        only_computed(place.project, place.source, node) for node, _, _ in cuts
    ):
        return place.left(f"a part of {whole} may be written to, kept, or handed to something that does so")
    changes = TextChanges(place.source)
    parts = fresh_name(place.source, f"{whole.rpartition('.')[2]}_parts")
    changes.before(_outside(place, body), f"{parts} = []")
    for node, _, index in cuts:
        asked = asked_form(place, node, {"x": node.value, "t": index})
        changes.replace(node, _part(asked, changes, parts, dim))
    return asked.done(place, changes)


def _part(asked: AskedForm, changes: TextChanges, parts: str, dim: int) -> str:
    """Return a part of a tensor that is cut when the first one is needed; of another one, or one written to, a view."""
    (x, t), torch = asked.names, asked.torch
    made = "made" if "made" not in (x, t, parts, torch) else "made_2"
    now = f"({x}._version, {x}.data_ptr())"
    when = (
        f"type({t}) is int and {asked.is_tensor(x)} and {x}.layout is {torch}.strided and {x}.dim() > {dim}"
        f" and {x}.requires_grad and {torch}.is_grad_enabled()"
        f" and ({made} := ({parts} or [{parts}.append(({x}, {now}, {x}.unbind({dim})))] and {parts})[0])[0] is {x}"
        f" and {made}[1] == {now}"
    )
    return asked.text(changes, when, f"{made}[2][{t}]")


def _loop(place: EditPlace) -> tuple[str, ast.AST] | None:
    """Return the variable of the innermost loop over a range around the line, and what is done in each turn."""
    inner = [node for node in ast.walk(place.statement) if isinstance(node, ast.ListComp | ast.GeneratorExp)]
    for node in (*inner, *place.source.above(place.statement)):
        if isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1:
            target, steps = node.generators[0].target, node.generators[0].iter
        elif isinstance(node, ast.For):
            target, steps = node.target, node.iter
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.While):
            return None
        else:
            continue
        ranges = isinstance(steps, ast.Call) and isinstance(steps.func, ast.Name) and steps.func.id == "range"
        return (target.id, node) if isinstance(target, ast.Name) and ranges else None
    return None


def _cut(node: ast.AST, turn: str) -> tuple[ast.Subscript, int, ast.expr] | None:
    """Return a part that is cut out for the turn of the loop: its node, the dimension, and the index."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load) or not is_plain(node.value):
        return None
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    at = next((at for at, each in enumerate(items) if not _is_all(each)), len(items))
    if at == len(items) or not all(map(_is_all, items[at + 1 :])) or not _is_of_turn(items[at], turn):
        return None
    return node, at, items[at]


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and node.lower is node.upper is node.step is None


def _is_of_turn(node: ast.expr, turn: str) -> bool:
    """Return whether an index is the turn of the loop, or a number more or less."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return _is_of_turn(node.left, turn) and isinstance(node.right, ast.Constant)
    return isinstance(node, ast.Name) and node.id == turn


def _changes(body: ast.AST, whole: str) -> bool:
    """Return whether the tensor is bound anew, written to or changed in place in the loop."""
    if whole.split(".")[0] in stores([body]) and whole.split(".")[0] != "self":
        return True
    for node in ast.walk(body):
        if isinstance(node, ast.Attribute) and node.attr.endswith("_") and ast.unparse(node.value).startswith(whole):
            return True
        written = isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
        if written and ast.unparse(node).startswith(whole):
            return True
    return False


def _outside(place: EditPlace, body: ast.AST) -> ast.stmt:
    return body if isinstance(body, ast.For) else place.statement
