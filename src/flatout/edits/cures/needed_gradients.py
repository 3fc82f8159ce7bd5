"""A backward pass that computes what the next optimizer steps read, and nothing else: `backward(inputs=...)`."""

import ast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.graphs.discarded_gradients import missed_gradients
from flatout.edits.reading.optimizer_steps import steps_after
from flatout.edits.reading.source_file import Function
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["with_needed_inputs"]


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
    steps = steps_after(place.project, place.source, statement)
    if not steps:
        return place.left("which optimizers step after this backward pass cannot be told from the source")
    reason = missed_gradients(place.project, place.source, statement, steps)
    if reason:
        return place.left(reason)
    unsure = next((each for each in steps if not _is_there(place, each)), None)
    if unsure is not None:
        return place.left(f"{ast.unparse(unsure)} may not be there yet")
    changes = TextChanges(place.source)
    named = list(dict.fromkeys(ast.unparse(each) for each in steps))
    changes.replace(call, f"{changes.text(call.func)}({_arguments(changes, call)}inputs={_parameters(named)})")
    return WrittenEdit(changes.done(place.project), changed=1)


def _is_there(place: EditPlace, optimizer: ast.expr) -> bool:
    """Return whether an optimizer is bound wherever the pass runs: it steps there in any case, or is always made."""
    block = block_of(place.source, place.statement)
    behind = block[block.index(place.statement) + 1 :]
    if any(place.source.statement(optimizer) is each for each in behind):
        return True
    scope = place.source.scope(place.statement)
    around: list[ast.AST] = [scope, place.source.tree]
    if isinstance(optimizer, ast.Attribute):
        around = [
            function for source, function in place.project.functions.get("__init__", ()) if source is place.source
        ]
    if isinstance(scope, Function) and any(each.arg == ast.unparse(optimizer) for each in _given(scope)):
        return True
    return any(_makes(each, optimizer) for whole in around for each in getattr(whole, "body", ()))


def _given(function: Function) -> list[ast.arg]:
    return [each for each in ast.walk(function.args) if isinstance(each, ast.arg)]


def _makes(statement: ast.stmt, optimizer: ast.expr) -> bool:
    return any(ast.unparse(target) == ast.unparse(optimizer) for target, _ in pairs(statement))


def _arguments(changes: TextChanges, call: ast.Call) -> str:
    return "".join(f"{each.arg}={changes.text(each.value)}, " for each in call.keywords)


def _parameters(optimizers: list[str]) -> str:
    """Return what lists the parameters that ask for gradients; where there are none, all are computed."""
    if len(optimizers) == 1:
        groups = f"for g in {optimizers[0]}.param_groups"
    else:
        groups = f"for o in ({', '.join(optimizers)}) for g in o.param_groups"
    return f'[p {groups} for p in g["params"] if p.requires_grad] or None'
