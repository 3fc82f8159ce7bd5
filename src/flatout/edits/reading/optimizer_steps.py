"""The optimizers that step after a backward pass of the same block, and whose parameters they hold."""

import ast
import re
from collections.abc import Iterable

from flatout.edits.reading.blocks import block_of, is_plain
from flatout.edits.reading.dataflow import Flow
from flatout.edits.reading.parameter_groups import owner_of_parameters
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile

__all__ = ["is_backward", "is_scheduler", "owners", "steps_after"]

_NO_OPTIMIZER = re.compile(r"sched|warm|ema|prof|env|scaler|progress|bar", re.IGNORECASE)
_OPTIMIZER = re.compile(r"opt", re.IGNORECASE)


def is_backward(node: ast.AST) -> bool:
    """Return whether something below `node` begins a backward pass."""
    return any(isinstance(each, ast.Attribute) and each.attr == "backward" for each in ast.walk(node))


def steps_after(project: Project, source: SourceFile, statement: ast.stmt) -> list[ast.expr] | None:
    """Return the optimizers that step between a backward pass and the next one; None where that is not sure.

    Looked at is what follows in the block, up to another pass, and if that has no step, in the blocks around, up to the
    loop.
    """
    found: list[ast.expr] = []
    while True:
        block = block_of(source, statement)
        for each in block[block.index(statement) + 1 :]:
            stepping = _steps_in(project, source, each)
            if stepping is None:
                return None
            found += stepping
            if is_backward(each):
                return found
        above = source.parents[statement]
        if found or not isinstance(above, ast.If | ast.With | ast.Try):
            return found
        statement = above


def _steps_in(project: Project, source: SourceFile, statement: ast.stmt) -> list[ast.expr] | None:
    """Return the optimizers that step below `statement`, None where one may do so out of sight."""
    found: list[ast.expr] = []
    for call in (each for each in ast.walk(statement) if isinstance(each, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name != "step":
            if any(_mentions_step(each) for _, each in project.functions.get(name, ())):
                return None
            continue
        given = [*call.args, *(each.value for each in call.keywords)]
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if len(given) == 1 and owner is not None and "scaler" in ast.unparse(owner).lower():
            owner, given = given[0], []  # scaler.step(optimizer)
        if owner is None or is_scheduler(project, source, owner):
            continue
        if given or not is_plain(owner) or not _is_optimizer(project, source, owner):
            return None
        found.append(owner)
    return found


def _mentions_step(function: ast.AST) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "step" for each in ast.walk(function))


def is_scheduler(project: Project, source: SourceFile, owner: ast.expr) -> bool:
    """Return whether something that has a `step()` is no optimizer: a scheduler, say."""
    made = [place.names.dotted(call.func) for place, call in Flow(project).origins(source, owner)]
    if made and all(each.startswith("torch.optim.") for each in made):
        return all(".lr_scheduler." in each for each in made)
    return bool(_NO_OPTIMIZER.search(ast.unparse(owner)))


def _is_optimizer(project: Project, source: SourceFile, owner: ast.expr) -> bool:
    made = [place.names.dotted(call.func) for place, call in Flow(project).origins(source, owner)]
    return any(each.startswith("torch.optim.") for each in made) or bool(_OPTIMIZER.search(ast.unparse(owner)))


def owners(project: Project, source: SourceFile, optimizers: Iterable[ast.expr]) -> set[str]:
    """Return the last names of what holds the parameters of these optimizers; nothing where one cannot be told."""
    found: set[str] = set()
    for optimizer in optimizers:
        made = Flow(project).origins(source, optimizer)
        holding = [owner_of_parameters(place, call) for place, call in made]
        if not made or any(each is None for each in holding):
            return set()
        found |= {ast.unparse(each).rpartition(".")[2] for each in holding if each is not None}
    return found
