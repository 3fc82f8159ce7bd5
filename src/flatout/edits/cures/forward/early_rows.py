"""Rows that the loss reads, picked before the last linear layer: `head(h[:, -1])` for `head(h)[:, -1]`.

Where a cross entropy ignores targets, the rows of the others are picked: the loss is a mean over these in any case.
"""

import ast
from dataclasses import dataclass

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.blocks import is_plain, loads
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.in_place import changed_in_place
from flatout.edits.text_changes import TextChanges, fresh_name, operand
from flatout.edits.written_edit import WrittenEdit

__all__ = ["rows_before_layer"]

_LINEAR = "torch.nn.Linear"
_BY_ROW = frozenset(
    f"torch.nn.{name}"
    for name in ("Linear", "ReLU", "GELU", "Tanh", "Sigmoid", "SiLU", "ELU", "LeakyReLU", "LayerNorm")
)
_ENTROPY = "torch.nn.functional.cross_entropy"
_FLAT = {"view": "(-1, ", "reshape": "(-1, ", "flatten": "(0, "}
_TURNED = ("transpose(1, 2)", "transpose(-1, -2)", "transpose(-2, -1)", "permute(0, 2, 1)", "mT")
_TAKEN = {"ignore_index", "reduction", "label_smoothing", "weight"}


@dataclass(frozen=True)
class _Layer:
    """The call of a layer, and what it is given."""

    call: ast.Call
    given: ast.expr


def rows_before_layer(place: EditPlace) -> WrittenEdit:
    """Pick the rows that are read before the linear layer of the finding's line."""
    layers = [one for node in ast.walk(place.statement) if (one := _layer(place, node)) is not None]
    if len(layers) != 1:
        return place.left("a single call of a linear layer is not found on this line")
    (layer,) = layers
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
    if place.source.names.dotted(node.func) == "torch.nn.functional.linear":
        return _Layer(node, node.args[0])
    if len(node.args) != 1 or not is_plain(node.func):
        return None
    values = attribute_values(place.project, place.source, node.func)
    if not isinstance(node.func, ast.Attribute):
        values = list(Flow(place.project).origins(place.source, node.func))
    by_row = [isinstance(each, ast.Call) and _is_by_row(place, source, each) for source, each in values]
    return _Layer(node, node.args[0]) if by_row and all(by_row) else None


def _is_by_row(place: EditPlace, source: object, call: ast.Call) -> bool:
    """Return whether what a call makes is a linear layer, or a row of modules that compute each row by itself."""
    found = next(each for each in place.project.sources if each is source)
    dotted = found.names.dotted(call.func)
    if dotted == "torch.nn.Sequential":
        parts = [found.names.dotted(each.func) if isinstance(each, ast.Call) else "" for each in call.args]
        return bool(parts) and all(each in _BY_ROW for each in parts)
    return dotted == _LINEAR


# -- rows picked by an index ------------------------------------------------------------------------------------------


def _at_once(place: EditPlace, layer: _Layer, index: ast.Subscript) -> WrittenEdit:
    if not _picks_rows(index.slice):
        return place.left(f"[{ast.unparse(index.slice)}] may pick columns, too")
    changes = TextChanges(place.source)
    changes.replace(index, _with_rows(changes, layer, changes.text(index).removeprefix(changes.text(layer.call))))
    return WrittenEdit(changes.done(place.project), changed=1)


def _with_rows(changes: TextChanges, layer: _Layer, index: str) -> str:
    """Return the call of the layer with an index behind what it is given."""
    others = "".join(f", {changes.text(each)}" for each in layer.call.args[1:])
    return f"{changes.text(layer.call.func)}({operand(changes, layer.given)}{index.strip()}{others})"


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
    if len(reads) + 1 != len(nodes) or not reads:
        return place.left(f"{name} is bound at several places, or read at none of this function")
    cuts = [place.source.parents[each] for each in reads]
    first = cuts[0]
    same = isinstance(first, ast.Subscript) and all(
        isinstance(each, ast.Subscript) and each.value is read and ast.dump(each.slice) == ast.dump(first.slice)
        for each, read in zip(cuts, reads, strict=True)
    )
    if not isinstance(first, ast.Subscript) or not same:
        return _before_entropy(place, layer, name, reads)
    if not _picks_rows(first.slice):
        return place.left(f"[{ast.unparse(first.slice)}] may pick columns, too")
    moved = _bound_later(place, scope, [first.slice])
    if moved:
        return place.left(f"{moved} is bound or changed behind this line")
    changes = TextChanges(place.source)
    changes.replace(layer.call, _with_rows(changes, layer, f"[{changes.text(first.slice)}]"))
    for each in cuts:
        assert isinstance(each, ast.Subscript)
        changes.replace(each, name)
    return WrittenEdit(changes.done(place.project), changed=1)


def _bound_later(place: EditPlace, scope: ast.AST, moved: list[ast.expr]) -> str:
    """Return a name in what is worked out earlier than before that is not what it will be; "" if there is none."""
    for name in sorted(loads(moved)):
        stored = [
            n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        ]
        later = any(each.lineno >= place.statement.lineno for each in stored)
        if later or changed_in_place([scope], name):
            return name
    return ""


# -- rows whose targets are ignored -----------------------------------------------------------------------------------


def _before_entropy(place: EditPlace, layer: _Layer, name: str, reads: list[ast.Name]) -> WrittenEdit:
    """Pick the rows whose targets count, where one cross entropy is all that reads the outputs."""
    loss = next((each for each in place.source.above(reads[0]) if _entropy(place, each) is not None), None)
    found = _entropy(place, loss) if loss is not None else None
    if not isinstance(loss, ast.Call) or found is None or any(loss not in place.source.above(each) for each in reads):
        return place.left(f"{name} is read for more than rows picked by one index, or one cross entropy")
    if not is_plain(layer.given):
        return place.left("what the layer is given has no name")
    outputs, targets = loss.args
    flat = _flat(outputs, name)
    target = _flat_targets(targets) if flat else None
    if not flat or target is None:
        return place.left(f"{ast.unparse(loss)} is not given all rows with a target for each")
    moved = _bound_later(place, place.source.scope(place.statement), [target])
    if moved:
        return place.left(f"{moved} is bound or changed behind this line")
    changes, given = TextChanges(place.source), ast.unparse(layer.given)
    goals, counts = (fresh_name(place.source, wanted) for wanted in ("targets", "counts"))
    changes.before(place.statement, f"{goals} = {ast.unparse(target)}.reshape(-1)", f"{counts} = {goals} != {found}")
    changes.replace(layer.given, f"{given}.reshape(-1, {given}.size(-1))[{counts}]")
    changes.replace(outputs, name)
    changes.replace(targets, f"{goals}[{counts}]")
    return WrittenEdit(changes.done(place.project), changed=1)


def _entropy(place: EditPlace, node: ast.AST) -> str | None:
    """Return which targets a cross entropy ignores, None for other calls, and where it gives a loss for each row."""
    if not isinstance(node, ast.Call) or len(node.args) != 2:
        return None
    if place.source.names.dotted(node.func) == _ENTROPY:
        return _ignored(node.keywords)
    if node.keywords or not is_plain(node.func):
        return None
    made = [each for _, each in attribute_values(place.project, place.source, node.func)]
    if not isinstance(node.func, ast.Attribute):
        made = [call for _, call in Flow(place.project).origins(place.source, node.func)]
    names = [ast.unparse(each.func) for each in made if isinstance(each, ast.Call)]
    if not made or len(names) != len(made) or any(not each.endswith("CrossEntropyLoss") for each in names):
        return None
    ignored = [_ignored(each.keywords) for each in made if isinstance(each, ast.Call) and not each.args]
    return f"{ast.unparse(node.func)}.ignore_index" if len(ignored) == len(made) and None not in ignored else None


def _ignored(keywords: list[ast.keyword]) -> str | None:
    named = {each.arg or "**": each.value for each in keywords}
    reduction = named.get("reduction")
    if named.keys() - _TAKEN or (reduction is not None and ast.unparse(reduction) not in ("'mean'", "'sum'")):
        return None
    return ast.unparse(named.get("ignore_index", ast.Constant(-100)))


def _flat(node: ast.expr, name: str) -> bool:
    """Return whether a loss is given all rows of `name`: one after the other, or with the classes second."""
    text = ast.unparse(node).replace(" ", "").removeprefix(name)
    if text == "" or text.removeprefix(".") in [each.replace(" ", "") for each in _TURNED]:
        return True
    method = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    begins = f".{method}{_FLAT.get(method, '?')}".replace(" ", "")
    return text.startswith(begins) and (method != "flatten" or text in (f"{begins}1)", f"{begins}-2)"))


def _flat_targets(node: ast.expr) -> ast.expr | None:
    """Return the targets, where a loss is given all of them."""
    flat = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and flat:
        given = [ast.unparse(each) for each in node.args]
        whole = (node.func.attr in ("view", "reshape") and given == ["-1"]) or (
            node.func.attr == "flatten" and not given
        )
        node = node.func.value if whole else node
    return node if is_plain(node) else None
