"""Rows that the loss reads, picked before the last linear layer: `head(h[:, -1])` for `head(h)[:, -1]`.

Where a cross entropy ignores targets, the rows of the others are picked: the loss is a mean over these in any case.
The script asks whether the layer is one that computes each row by itself, with nothing that watches it, and whether the
index, or the targets, are those of rows; all else goes as it is written.
"""

import ast
from dataclasses import dataclass

from flatout.edits.cures.asked_forms import AskedForm, asked_form, unasked, with_parts
from flatout.edits.cures.forward.asked_layers import BY_ROW, is_by_row, picks_rows
from flatout.edits.cures.forward.counted_targets import bound_later, rows_that_count, written_between
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.blocks import block_of, is_plain
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.lists.hidden_access import seen_by_name
from flatout.edits.reading.purity.computed_uses import only_computed
from flatout.edits.reading.purity.printed_values import is_printed
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["rows_before_layer"]

_LINEAR = "torch.nn.Linear"
_BY_ROW = frozenset(f"torch.nn.{name}" for name in BY_ROW)
_SIMPLE = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return
_APART = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.IfExp | ast.BoolOp


@dataclass(frozen=True)
class _Layer:
    """The call of a layer, what it is given, and whether it is a sequence of layers, or a function."""

    call: ast.Call
    given: ast.expr
    kind: str  # "layer", "sequence" or "function"


def rows_before_layer(place: EditPlace) -> WrittenEdit:
    """Pick the rows that are read before the linear layer of the finding's line."""
    layers = [one for node in ast.walk(place.statement) if (one := _layer(place, node)) is not None]
    if len(layers) != 1:
        return place.left("a single call of a linear layer is not found on this line")
    (layer,) = layers
    against = unasked(place, layer.call, uses=("all", "getattr", "len", "type"))
    if not against and "register_module_" in place.project.mentions:
        against = "a hook of all modules sees what the layer is given"
    set_ = (each for _, each in place.project.nodes(ast.Attribute) if not isinstance(each.ctx, ast.Load))
    if not against and any(each.attr in ("forward", "__call__") for each in set_):
        against = "what layers do is set"
    if not against and "fullgraph" in place.project.mentions:
        against = "`fullgraph`: code that is compiled whole can ask for no values"
    if against:
        return place.left(against)
    around = place.source.parents[layer.call]
    if isinstance(around, ast.Subscript) and around.value is layer.call:
        return _at_once(place, layer, around)
    statement = place.statement
    named = isinstance(statement, ast.Assign) and statement.value is layer.call and len(statement.targets) == 1
    if not isinstance(statement, ast.Assign) or not named or not isinstance(statement.targets[0], ast.Name):
        return place.left("its rows are picked in no expression that this line shows: pick them before the layer")
    return _later(place, layer, statement.targets[0].id)


# -- the layer --------------------------------------------------------------------------------------------------------


def _layer(place: EditPlace, node: ast.AST) -> _Layer | None:
    if not isinstance(node, ast.Call) or not node.args or node.keywords:
        return None
    if any(isinstance(each, ast.Starred) for each in node.args):
        return None
    if place.source.names.dotted(node.func) == "torch.nn.functional.linear":
        return _Layer(node, node.args[0], "function")
    if len(node.args) != 1 or not is_plain(node.func):
        return None
    values = attribute_values(place.project, place.source, node.func)
    if not isinstance(node.func, ast.Attribute):
        values = list(Flow(place.project).origins(place.source, node.func))
    kinds = {_kind(place, source, each) if isinstance(each, ast.Call) else "" for source, each in values}
    return _Layer(node, node.args[0], kinds.pop()) if len(kinds) == 1 and "" not in kinds else None


def _kind(place: EditPlace, source: object, call: ast.Call) -> str:
    """Return what a call makes: a linear layer, or a sequence of modules that compute each row by itself."""
    found = next(each for each in place.project.sources if each is source)
    dotted = found.names.dotted(call.func)
    if dotted == "torch.nn.Sequential":
        parts = [found.names.dotted(each.func) if isinstance(each, ast.Call) else "" for each in call.args]
        return "sequence" if parts and all(each in _BY_ROW for each in parts) else ""
    return "layer" if dotted == _LINEAR else ""


# -- rows picked by an index ------------------------------------------------------------------------------------------


def _at_once(place: EditPlace, layer: _Layer, index: ast.Subscript) -> WrittenEdit:
    if not _picks_rows(index.slice):
        return place.left(f"[{ast.unparse(index.slice)}] may pick columns, too")
    if is_printed(place.project, place.source, index):
        return place.left("the rows may be printed, with the name of their graph")
    asked, when, form = _with_rows(place, layer, index)
    return asked.put(place, when, form)


def _with_rows(place: EditPlace, layer: _Layer, index: ast.Subscript) -> tuple[AskedForm, str, str]:
    """Return how the layer's call and the index behind it are asked about, when, and with rows picked before."""
    items = index.slice.elts if isinstance(index.slice, ast.Tuple) else [index.slice]
    picked_by = [each for each in items if isinstance(each, ast.Name | ast.Attribute | ast.Compare)]
    called = layer.call.args[1:] if layer.kind == "function" else [layer.call.func]
    wanted = ["weight", "bias"] if layer.kind == "function" else ["layer"]
    operands = dict(zip(wanted, called, strict=False))
    operands = {"x": layer.given, **operands} if layer.kind == "function" else {**operands, "x": layer.given}
    operands |= {f"rows_{number}" if number else "rows": each for number, each in enumerate(picked_by)}
    asked = asked_form(place, index, operands)
    parts: dict[ast.expr, ast.expr] = {each: ast.Name(name, ast.Load()) for name, each in asked.operands.items()}
    x, torch = asked.named(layer.given), asked.torch
    when = f"{asked.is_tensor(x)} and {picks_rows(torch, x, len(items), [asked.named(each) for each in picked_by])}"
    if layer.kind == "function":
        when += f" and {asked.is_tensor(asked.named(called[0]))} and {asked.named(called[0])}.dim() == 2"
    else:
        name = asked.named(layer.call.func)
        when = f"{is_by_row(torch, name, in_sequence=layer.kind == 'sequence')} and {when}"
    when += f" and {x}.isfinite().all()"  # NaN in any row comes to the weights' gradients
    form = with_parts(layer.call, parts)
    form.args = [ast.Subscript(form.args[0], with_parts(index.slice, parts), ast.Load()), *form.args[1:]]
    return asked, when, ast.unparse(form)


def _picks_rows(node: ast.expr) -> bool:
    """Return whether an index leaves the last dimension alone, if there are three, or is one of rows."""
    items = node.elts if isinstance(node, ast.Tuple) else [node]
    kinds = (ast.Slice, ast.Constant, ast.UnaryOp, ast.Name, ast.Attribute, ast.Compare)
    whole = [isinstance(each, ast.Slice) and each.lower is each.upper is each.step is None for each in items]
    others = [each for each in items if isinstance(each, ast.Constant) and not isinstance(each.value, int)]
    return all(isinstance(each, kinds) for each in items) and all(whole[2:]) and not others


def _later(place: EditPlace, layer: _Layer, name: str) -> WrittenEdit:
    """Pick rows of outputs that have a name, where all that reads them picks the same ones, or is one cross entropy."""
    scope = place.source.scope(place.statement)
    nodes = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name]
    reads = [node for node in nodes if isinstance(node.ctx, ast.Load)]
    if len(reads) + 1 != len(nodes) or not reads or any(place.source.scope(each) is not scope for each in reads):
        return place.left(f"{name} is bound at several places, or read at none of this function")
    cuts = [place.source.parents[each] for each in reads]
    first = cuts[0]
    same = isinstance(first, ast.Subscript) and all(
        isinstance(each, ast.Subscript) and each.value is read and ast.dump(each.slice) == ast.dump(first.slice)
        for each, read in zip(cuts, reads, strict=True)
    )
    if not isinstance(first, ast.Subscript) or not same:
        return rows_that_count(place, layer.call, layer.kind, name, reads)
    if not _picks_rows(first.slice):
        return place.left(f"[{ast.unparse(first.slice)}] may pick columns, too")
    moved = bound_later(place, scope, [first.slice])
    if moved:
        return place.left(f"{moved} is bound or changed behind this line")
    in_order = sorted((each for each in cuts if isinstance(each, ast.Subscript)), key=_place)
    against = seen_by_name(place.project, name) or _kept_apart(place, in_order)
    if against:
        return place.left(against)
    whole = ast.copy_location(ast.Subscript(layer.call, first.slice, ast.Load()), layer.call)
    asked, when, form = _with_rows(place, layer, whole)
    changes = TextChanges(place.source)
    changes.replace(layer.call, asked.text(changes, when, form))
    for each in in_order:
        changes.replace(each, name)
    return asked.done(place, changes)


def _place(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _kept_apart(place: EditPlace, cuts: list[ast.Subscript]) -> str:
    """Return why the rows may not be picked once, where the layer is: read elsewhere, seldom, or written to; or ""."""
    source = place.source
    if any(not isinstance(each.ctx, ast.Load) for each in cuts):
        return "the rows that are picked are written to"
    if any(is_printed(place.project, source, each) for each in cuts):
        return "the rows may be printed, with the name of their graph"
    if any(isinstance(each, ast.Attribute | ast.Call) for each in ast.walk(cuts[0].slice)):
        return f"[{ast.unparse(cuts[0].slice)}] may be others when the layer is called"
    around = {*source.above(place.statement)}
    for cut in cuts:
        turns = [each for each in source.above(cut) if isinstance(each, ast.For | ast.While) and each not in around]
        if turns:
            return "the rows are picked in a loop behind this line"
    if not all(only_computed(place.project, source, each) for each in cuts[:-1]):
        return "rows that are picked several times may be written to"
    block = block_of(source, place.statement)
    first = next((each for each in (cuts[0], *source.above(cuts[0])) if each in block), None)
    between = block[block.index(place.statement) + 1 : block.index(first)] if isinstance(first, ast.stmt) else []
    apart = [each for each in source.above(cuts[0]) if isinstance(each, _APART) and each not in around]
    if not isinstance(first, _SIMPLE) or apart or not all(isinstance(each, _SIMPLE) for each in between):
        return "the rows are not picked each time that the layer is called"
    return written_between(place, between)
