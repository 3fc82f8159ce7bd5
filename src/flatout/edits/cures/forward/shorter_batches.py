"""Padding that ends every row of a batch, cut off where a model begins to compute, as its own masks say.

Only of a `forward` whose outputs are proven not to depend on padding (`padded_rows`). A position is cut off where all
masks of the source say that it is padding, in every row.
"""

import ast
from dataclasses import dataclass

from flatout.edits.cures.forward.padded_rows import PaddedRows, Unproven
from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.lists.hidden_access import is_of_python
from flatout.edits.reading.purity.own_meanings import own_operator
from flatout.edits.reading.purity.steady_conditions import module_name
from flatout.edits.reading.purity.traced_code import traced_by
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.user_classes import names_below
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["cut_to_longest"]

_SET = ("p", "dropout", "forward", "__class__", "training")  # what layers do otherwise, where it is set


@dataclass(frozen=True)
class _Mask:
    """What says which positions count: an argument of `forward`, and the expression that is true where they do."""

    argument: str
    counts: str


def cut_to_longest(place: EditPlace) -> WrittenEdit:
    """Cut what the model of the finding is called with to its longest row, while it trains."""
    found = _forward(place)
    if found is None:
        return place.left("which forward() of the source computes the padding cannot be told")
    source, forward = found
    mask = _mask(place, source, forward, str(place.finding.argument("source")))
    if mask is None:
        return place.left(f"no argument of {source.shown}:{forward.lineno} forward() says which positions are padding")
    if forward.args.vararg or forward.args.kwarg:
        return place.left("forward() takes any number of arguments")
    against = _seen_by(place, source, forward)
    if against:
        return place.left(against)
    try:
        proof = PaddedRows(place.project, source, forward)
    except Unproven as error:
        return place.left(f"{source.shown}:{forward.lineno}: {error}")
    if not proof.counts:
        return place.left(f"no mask of {source.shown}:{forward.lineno} forward() says which positions are padding")
    changes = TextChanges(source)
    docstring = isinstance(forward.body[0], ast.Expr) and isinstance(forward.body[0].value, ast.Constant)
    changes.before(forward.body[1] if docstring else forward.body[0], *_cut(source, _torch_in(source), proof))
    at = place.project.sources.index(source)
    return WrittenEdit(with_import(changes.done(place.project), at, "torch"), changed=1)


def _torch_in(source: SourceFile) -> str:
    """Return what a file calls torch, or would."""
    return module_name(source, "torch") or "torch"


def _cut(source: SourceFile, torch: str, proof: PaddedRows) -> list[str]:
    """Return the lines that cut the arguments to the longest row."""
    counts, length = fresh_name(source, "counts"), fresh_name(source, "length")
    first, *others = proof.words
    asked = [f"{proof.root}.training and type({first}) is {torch}.Tensor"]
    asked += [f"{first}.dim() == 2 and {first}.numel() and not {first}.is_meta"]
    asked += [f"type({each}) is {torch}.Tensor and {each}.shape == {first}.shape" for each in others]
    asked += [f"{each}.device == {first}.device" for each in others]
    asked += [f"{each}.dtype is {torch}.bool" for each in proof.flags]
    either = " | ".join(f"({each})" for each in proof.counts) if len(proof.counts) > 1 else proof.counts[0]
    numbers = f"{torch}.arange(1, len({counts}) + 1, device={counts}.device)"
    return [
        "if (",
        *(f"    {'and ' if number else ''}{each}" for number, each in enumerate(asked)),
        "):",
        f"    {counts} = ({either}).any(0)",
        f"    {length} = max(1, int(({counts} * {numbers}).max()))",
        *(f"    {each} = {each}[:, :{length}]" for each in proof.words),
    ]


def _seen_by(place: EditPlace, source: SourceFile, forward: Function) -> str:
    """Return what might see shorter batches, or make another thing of the layers; "" for nothing."""
    traced = traced_by(place.project, compiled=True)
    if traced:
        return f"{traced}: what is traced has the length that it was traced with"
    if not is_of_python(source, "int", "len", "max", "type"):
        return "a name of Python's own stands for something else in this file"
    owner = source.parents[forward]
    if not isinstance(owner, ast.ClassDef) or [source.names.dotted(each) for each in owner.bases] != [
        "torch.nn.Module"
    ]:
        return "the class of forward() is made from others"
    if names_below(place.project, owner.name) != {owner.name} or forward.decorator_list or owner.decorator_list:
        return "forward() is decorated, or its class has others below it"
    for where, node in place.project.nodes(ast.Attribute, ast.FunctionDef):
        name = node.attr if isinstance(node, ast.Attribute) else node.name
        is_set = isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and name in _SET
        if "hook" in name or is_set or name in ("__getattr__", "__getattribute__", "__call__"):
            return where.at(node, f"`{name}` may see the batches, or change the layers")
    return own_operator(place.project)


def _forward(place: EditPlace) -> tuple[SourceFile, Function] | None:
    """Return the `forward` of the model that is called where the recording says."""
    file, line = place.finding.argument("file"), place.finding.argument("line")
    source = next((each for each in place.project.sources if str(each.path) == file), None)
    if source is None:
        return None
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and _is_at(node, line)]
    made = [call for each in calls for _, call in Flow(place.project).origins(source, each.func) if call is not each]
    classes = {last_name(call.func) for call in made} & place.project.classes.keys()
    found = [
        (where, node)
        for name in classes
        for where, definition in place.project.classes[name]
        for node in definition.body
        if isinstance(node, Function) and node.name == "forward"
    ]
    return found[0] if len(found) == 1 else None


def _is_at(call: ast.Call, line: object) -> bool:
    return isinstance(line, int) and call.lineno <= line <= (call.end_lineno or call.lineno)


def _mask(place: EditPlace, source: SourceFile, forward: Function, kind: str) -> _Mask | None:
    given = {each.arg for each in ast.walk(forward.args) if isinstance(each, ast.arg)}
    if kind == "attention_mask":
        return _Mask(kind, f"{kind} != 0") if kind in given else None
    found = set()
    for call in (node for node in ast.walk(forward) if isinstance(node, ast.Call)):
        if kind == "key_padding_mask":
            masks = [each.value for each in call.keywords if each.arg and each.arg.endswith("key_padding_mask")]
            found |= {one for each in masks if (one := _of_padding(each, given)) is not None}
        elif kind == "padding_idx" and len(call.args) == 1 and isinstance(call.args[0], ast.Name):
            index = _padding_index(place, source, call.func)
            if index and call.args[0].id in given:
                found.add(_Mask(call.args[0].id, f"{call.args[0].id} != {index}"))
    return found.pop() if len(found) == 1 else None


def _of_padding(node: ast.expr, given: set[str]) -> _Mask | None:
    """Return the mask that is true where positions are padding: an argument, or a comparison of one with a number."""
    if isinstance(node, ast.Name) and node.id in given:
        return _Mask(node.id, f"~{node.id}")
    compared = isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)
    if isinstance(node, ast.Compare) and compared and isinstance(node.left, ast.Name) and node.left.id in given:
        return _Mask(node.left.id, f"{node.left.id} != {ast.unparse(node.comparators[0])}")
    return None


def _padding_index(place: EditPlace, source: SourceFile, function: ast.expr) -> str:
    """Return the padding index of the embedding that `self.name` is, "" where it is none."""
    values = attribute_values(place.project, source, function)
    calls = [(where, each) for where, each in values if isinstance(each, ast.Call)]
    if len(calls) != 1 or len(values) != 1 or calls[0][0].names.dotted(calls[0][1].func) != "torch.nn.Embedding":
        return ""
    told = {each.arg for each in calls[0][1].keywords}
    return f"{ast.unparse(function)}.padding_idx" if "padding_idx" in told or len(calls[0][1].args) > 2 else ""
