"""Rows whose targets a cross entropy does not ignore, picked before the linear layer that gives it its outputs."""

import ast
from collections.abc import Sequence

from flatout.edits.cures.asked_forms import name_of_module
from flatout.edits.cures.forward.asked_layers import is_by_row, is_unwatched
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import is_plain, loads
from flatout.edits.reading.called_layers import makers
from flatout.edits.reading.in_place import changed_in_place
from flatout.edits.reading.quiet_code import loud
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["bound_later", "rows_that_count", "written_between"]

_ENTROPY = "torch.nn.functional.cross_entropy"
_FLAT = ("view", "reshape")
_TURNED = ("transpose(1, 2)", "transpose(-1, -2)", "transpose(-2, -1)", "permute(0, 2, 1)", "mT")
_TAKEN = {"ignore_index", "reduction", "label_smoothing", "weight"}


def rows_that_count(place: EditPlace, layer: ast.Call, kind: str, name: str, reads: Sequence[ast.Name]) -> WrittenEdit:
    """Pick the rows whose targets count, where one cross entropy is all that reads the outputs, `name`, of a layer."""
    loss = next((each for each in place.source.above(reads[0]) if _ignored_by(place, each) is not None), None)
    ignored = _ignored_by(place, loss) if loss is not None else None
    if not isinstance(loss, ast.Call) or ignored is None or any(loss not in place.source.above(each) for each in reads):
        return place.left(f"{name} is read for more than rows picked by one index, or one cross entropy")
    given = layer.args[0]
    if not isinstance(given, ast.Name) or kind == "function" or not makers(place.project, place.source, layer.func):
        return place.left("what the layer is given has no name, or the layer is made elsewhere")
    outputs, targets = loss.args
    target = _target(targets)
    shapes = _shapes(place, outputs, targets, name, layer, in_sequence=kind == "sequence")
    if target is None or shapes is None:
        return place.left(f"{ast.unparse(loss)} is not given all rows with a target for each")
    moved = [
        target,
        ast.parse(ignored, mode="eval").body,
        *(each for each in _classes(outputs) if name not in loads([each])),
    ]
    changed = bound_later(place, place.source.scope(place.statement), moved)
    around = {*place.source.above(loss)}
    scope = place.source.scope(place.statement)
    behind = [each for each in ast.walk(scope) if isinstance(each, ast.stmt) and each.lineno > place.statement.lineno]
    before = [each for each in behind if each not in around and each.lineno < loss.lineno]
    against = f"{changed} is bound or changed behind this line" if changed else written_between(place, before)
    if against:
        return place.left(against)
    return _written(
        place,
        layer,
        name,
        loss,
        target.id,
        ignored,
        f"{_asked_of(place, layer, loss, kind)} and {shapes} and {given.id}.isfinite().all()",
    )


def _written(
    place: EditPlace, layer: ast.Call, name: str, loss: ast.Call, target: str, ignored: str, when: str
) -> WrittenEdit:
    changes, source = TextChanges(place.source), place.source
    given, called = ast.unparse(layer.args[0]), changes.text(layer.func)
    goals, counts = (fresh_name(source, wanted) for wanted in ("targets", "counts"))
    changes.before(
        place.statement,
        f"{counts} = None",
        f"if {when}:",
        f"    {goals} = {target}.reshape(-1)",
        f"    {counts} = {goals} != {ignored}",
    )
    rows = f"{called}({given}.reshape(-1, {given}.size(-1))[{counts}])"
    changes.replace(layer, f"({changes.text(layer)} if {counts} is None else {rows})")
    rest = "".join(f", {each.arg}={changes.text(each.value)}" for each in loss.keywords)
    counted = f"{changes.text(loss.func)}({name}, {goals}[{counts}]{rest})"
    changes.replace(loss, f"({changes.text(loss)} if {counts} is None else {counted})")
    at = place.project.sources.index(source)
    project = changes.done(place.project)
    is_torch = name_of_module(place, "torch") == "torch"
    return WrittenEdit(with_import(project, at, "torch") if is_torch else project, changed=1)


def _asked_of(place: EditPlace, layer: ast.Call, loss: ast.Call, kind: str) -> str:
    """Return the condition under which the layer and the loss are those of torch."""
    torch, called = name_of_module(place, "torch"), ast.unparse(layer.func)
    asked = is_by_row(torch, called, in_sequence=kind == "sequence")
    if place.source.names.dotted(loss.func) == _ENTROPY:
        return asked
    function = ast.unparse(loss.func)
    whole = f'type({function}) is {torch}.nn.CrossEntropyLoss and {function}.reduction in ("mean", "sum")'
    return f"{asked} and {whole} and {is_unwatched(function)}"


# -- what a loss is given ---------------------------------------------------------------------------------------------


def _ignored_by(place: EditPlace, node: ast.AST) -> str | None:
    """Return which targets a cross entropy ignores, None for other calls, and where it gives a loss for each row."""
    if not isinstance(node, ast.Call) or len(node.args) != 2:
        return None
    if place.source.names.dotted(node.func) == _ENTROPY:
        return _ignored(node.keywords)
    if node.keywords or not is_plain(node.func):
        return None
    made = makers(place.project, place.source, node.func)
    names = {where.names.dotted(each.func) for where, each in made}
    if names != {"torch.nn.CrossEntropyLoss"}:
        return None
    ignored = [_ignored(each.keywords) for _, each in made if not each.args]
    return f"{ast.unparse(node.func)}.ignore_index" if len(ignored) == len(made) and None not in ignored else None


def _ignored(keywords: list[ast.keyword]) -> str | None:
    named = {each.arg or "**": each.value for each in keywords}
    reduction = named.get("reduction")
    if named.keys() - _TAKEN or (reduction is not None and ast.unparse(reduction) not in ("'mean'", "'sum'")):
        return None
    ignored = named.get("ignore_index", ast.Constant(-100))
    number = ignored.operand if isinstance(ignored, ast.UnaryOp) else ignored
    return ast.unparse(ignored) if isinstance(number, ast.Constant) or is_plain(number) else None


def _target(node: ast.expr) -> ast.Name | None:
    """Return the targets, where a loss is given all of them."""
    whole = node.func.value if _is_flattened(node) else node  # type: ignore[attr-defined]
    return whole if isinstance(whole, ast.Name) else None


def _is_flattened(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return False
    given = [ast.unparse(each) for each in node.args]
    return given == ["-1"] if node.func.attr in _FLAT else node.func.attr == "flatten" and not given


def _shapes(
    place: EditPlace, outputs: ast.expr, targets: ast.expr, name: str, layer: ast.Call, *, in_sequence: bool
) -> str | None:
    """Return the condition under which a loss is given all rows of `name`, with a target for each; None for others."""
    torch, h, target = name_of_module(place, "torch"), ast.unparse(layer.args[0]), _target(targets)
    if target is None:
        return None
    plain = f"type({h}) is type({target.id}) is {torch}.Tensor and {target.id}.dtype is {torch}.int64"
    text = ast.unparse(outputs)
    if text == name and not _is_flattened(targets):
        return f"{plain} and {h}.dim() == 2 and {target.id}.shape == {h}.shape[:1]"
    if text.removeprefix(f"{name}.") in _TURNED and not _is_flattened(targets):
        return f"{plain} and {h}.dim() == 3 and {target.id}.shape == {h}.shape[:2]"
    classes = _classes(outputs)
    if not _is_flat(outputs, name):
        return None
    flat = f"{plain} and {h}.is_contiguous() and {target.id}.is_contiguous() and {h}.dim() > 1"
    flat += f" and {target.id}.numel() * {h}.size(-1) == {h}.numel() > 0"
    flat += "" if _is_flattened(targets) else f" and {target.id}.dim() == 1"
    if not classes:
        return f"{flat} and {h}.dim() == 3"
    if ast.unparse(classes[0]) in (f"{name}.size(-1)", f"{name}.shape[-1]"):
        return flat
    if not (isinstance(classes[0], ast.Constant) or is_plain(classes[0])):
        return None
    called = f"{ast.unparse(layer.func)}[-1]" if in_sequence else ast.unparse(layer.func)
    last = f"type({called}) is {torch}.nn.Linear and " if in_sequence else ""
    return f"{flat} and {last}{called}.out_features == {ast.unparse(classes[0])}"


def _classes(outputs: ast.expr) -> list[ast.expr]:
    """Return how many classes `out.view(-1, classes)` has, nothing where that is not said."""
    is_view = isinstance(outputs, ast.Call) and isinstance(outputs.func, ast.Attribute) and outputs.func.attr in _FLAT
    return outputs.args[1:2] if is_view else []  # type: ignore[attr-defined]


def _is_flat(node: ast.expr, name: str) -> bool:
    """Return whether a loss is given all rows of `name`, one after the other."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return False
    given = [ast.unparse(each) for each in node.args]
    if ast.unparse(node.func.value) != name:
        return False
    if node.func.attr in _FLAT:
        return len(given) == 2 and given[0] == "-1"
    return node.func.attr == "flatten" and given in (["0", "1"], ["0", "-2"])


# -- names that are read earlier than before --------------------------------------------------------------------------


def bound_later(place: EditPlace, scope: ast.AST, moved: list[ast.expr]) -> str:
    """Return a name in what is worked out earlier than before that is not what it will be; "" if there is none."""
    for name in sorted(loads(moved)):
        stored = [
            n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        ]
        later = any(each.lineno >= place.statement.lineno for each in stored)
        if later or changed_in_place([scope], name):
            return name
    return ""


def written_between(place: EditPlace, between: Sequence[ast.stmt]) -> str:
    """Return what may write into tensors in statements between, by whatever name; "" for nothing."""
    found = loud(place.project, place.source, between, lambda _: False)
    return f"{found} may write to what the rows are picked by" if found else ""
