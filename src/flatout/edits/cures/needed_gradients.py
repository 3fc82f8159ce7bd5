"""A backward pass that computes what the next optimizer steps read, and nothing else: `backward(inputs=...)`."""

import ast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.gradient_reads import gradient_hook
from flatout.edits.reading.optimizer_steps import is_backward, steps_after
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["with_needed_inputs"]

_CHECKPOINTS = ("checkpoint", "checkpoint_sequential", "gradient_checkpointing_enable")
_READERS = ("grad", "clip_grad_norm_", "clip_grad_value_", "get_total_norm", "unscale_")


def with_needed_inputs(place: EditPlace) -> WrittenEdit:
    """Name the parameters of the optimizers that step after the backward pass of the finding."""
    statement = place.statement
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "backward":
        return place.left("this line is not loss.backward() alone")
    if call.args or any(each.arg != "retain_graph" for each in call.keywords):
        return place.left("its backward() is given more than retain_graph")
    if place.finding.argument("parameters") == 0:
        return place.left("an input has requires_grad here: take that off")
    reason = _refused(place)
    if reason:
        return place.left(reason)
    steps = steps_after(place.project, place.source, statement)
    if not steps:
        return place.left("which optimizers step after this backward pass cannot be told from the source")
    changes = TextChanges(place.source)
    named = list(dict.fromkeys(ast.unparse(each) for each in steps))
    changes.replace(call, f"{changes.text(call.func)}({_arguments(changes, call)}inputs={_parameters(named)})")
    return WrittenEdit(changes.done(place.project), changed=1)


def _refused(place: EditPlace) -> str:
    """Return why gradients that are left out may be missed after all, "" where nothing speaks for it."""
    hook = gradient_hook(place.project)
    if hook:
        return f"{hook} may need the gradients that would be left out"
    for _, node in place.project.nodes(ast.Attribute, ast.Name):
        if (node.attr if isinstance(node, ast.Attribute) else node.id) in _CHECKPOINTS:
            return "checkpointed parts of a model may not be told inputs"
    block = block_of(place.source, place.statement)
    for each in block[block.index(place.statement) + 1 :]:
        if is_backward(each):
            break
        names = {node.attr for node in ast.walk(each) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(each) if isinstance(node, ast.Name)}
        reader = next((name for name in _READERS if name in names), "")
        if reader:
            return f"{reader} behind it may read the gradients that would be left out"
    return ""


def _arguments(changes: TextChanges, call: ast.Call) -> str:
    return "".join(f"{each.arg}={changes.text(each.value)}, " for each in call.keywords)


def _parameters(optimizers: list[str]) -> str:
    """Return what lists the parameters that ask for gradients; where there are none, all are computed."""
    if len(optimizers) == 1:
        groups = f"for g in {optimizers[0]}.param_groups"
    else:
        groups = f"for o in ({', '.join(optimizers)}) for g in o.param_groups"
    return f'[p {groups} for p in g["params"] if p.requires_grad] or None'
