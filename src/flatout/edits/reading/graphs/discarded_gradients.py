"""Whether gradients that a backward pass leaves out are missed: nobody reads them, and all others are zeroed first."""

import ast
from collections.abc import Container

from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.gradient_reads import gradient_hook
from flatout.edits.reading.graphs.kept_graphs import reached_functions
from flatout.edits.reading.optimizer_steps import is_scheduler
from flatout.edits.reading.parameter_groups import owner_of_parameters
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.writes.changed_meanings import changed_meaning

__all__ = ["missed_gradients", "sees_gradients"]

_SEEING = words(
    "grad main_grad grad_fn retain_grad retains_grad is_leaf clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ "
    "get_total_norm clip_grad_norm unscale_ globals locals vars exec eval __dict__ __getattribute__ "
    "register_step_pre_hook register_step_post_hook"
)
_CHECKPOINTS = words("checkpoint checkpoint_sequential gradient_checkpointing_enable")


def sees_gradients(project: Project, but: Container[ast.AST] = ()) -> str:
    """Return what in the project may read gradients or graphs besides `step()`, with its place; "" for nothing.

    `but`: nodes that may.
    """
    hook = gradient_hook(project)
    if hook:
        return hook
    if "backward" in project.functions:
        return "backward() of the user's"
    for source, node in project.nodes(ast.Attribute, ast.Name, ast.Constant, ast.Call):
        if node in but:
            continue
        if isinstance(node, ast.Call):
            dynamic = last_name(node.func) == "getattr" and not isinstance([*node.args, None][1:2][0], ast.Constant)
            found = "getattr" if dynamic else ""
        elif isinstance(node, ast.Constant):
            found = node.value if isinstance(node.value, str) and node.value in _SEEING else ""
        else:
            own = node.attr if isinstance(node, ast.Attribute) else node.id
            names = (own, source.names.dotted(node).rpartition(".")[2])
            found = next((each for each in names if each in _SEEING | _CHECKPOINTS), "")
            found = "" if found == "eval" and isinstance(node, ast.Attribute) else found  # model.eval()
        if found:
            return source.at(node, str(found))
    return ""


def missed_gradients(project: Project, source: SourceFile, statement: ast.stmt, steps: list[ast.expr]) -> str:
    """Return who may miss what the backward pass of `statement` does not add to gradients; "" for nobody.

    `steps`: the optimizers whose own gradients it adds all the same. All others must be zeroed in the block of their
    step, with nothing but other passes since.
    """
    meaning = changed_meaning(project)
    if meaning:
        return meaning
    seen = sees_gradients(project)
    if seen:
        return f"{seen} may see the gradients that would be left out"
    for place, node in project.nodes(ast.Attribute):
        called = place.parents[node]
        if node.attr == "step" and not (isinstance(called, ast.Call) and called.func is node):
            return place.at(node, f"{ast.unparse(node)} may be called by another name")
    own = {ast.unparse(each) for each in steps}
    for place, call in project.nodes(ast.Call):
        if last_name(call.func) != "step" or not isinstance(call.func, ast.Attribute):
            continue
        owner, given = call.func.value, [*call.args, *(each.value for each in call.keywords)]
        if len(given) == 1 and "scaler" in ast.unparse(owner).lower():
            owner, given = given[0], []
        if is_scheduler(project, place, owner) or (ast.unparse(owner) in own and place is source):
            continue
        if given or not _is_zeroed(project, place, call, owner, statement):
            return f"{place.at(call, ast.unparse(call))} may use the gradients that would be left out"
    return ""


def _is_zeroed(project: Project, place: SourceFile, call: ast.Call, owner: ast.expr, statement: ast.stmt) -> bool:
    """Return whether an optimizer's gradients are zeroed before its step, and not added to by `statement` since."""
    step = place.statement(call)
    block = block_of(place, step)
    zeroing = {f"{ast.unparse(owner)}.zero_grad()", *_zeroing(project, place, owner)}
    for at in range(block.index(step) - 1, -1, -1):
        between = block[at + 1 : block.index(step)]
        if ast.unparse(block[at]) in zeroing:
            inside = {node for each in between for node in ast.walk(each)}
            called = [function for _, function in reached_functions(project, between)]
            return statement not in inside and not any(statement in ast.walk(each) for each in called)
        if isinstance(block[at], Function | ast.ClassDef):
            return False
    return False


def _zeroing(project: Project, place: SourceFile, optimizer: ast.expr) -> list[str]:
    """Return the statement by which a network zeroes all that an optimizer holds, if the same names mean them here."""
    made = Flow(project).origins(place, optimizer)
    owners = [owner_of_parameters(source, call) for source, call in made]
    texts = {ast.unparse(each) for each in owners if each is not None}
    scopes = (place.scope(optimizer), place.tree)
    here = all(source is place and source.scope(call) in scopes for source, call in made)
    known = here and len(texts) == 1 and None not in owners and "add_param_group" not in project.mentions
    return [f"{min(texts)}.zero_grad()"] if known and "zero_grad" not in project.functions else []
