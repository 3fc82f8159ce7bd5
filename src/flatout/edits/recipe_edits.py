"""A recipe carried out on a project: fix by fix, each on the code that the one before it has left.

Edits come first: they are made for the files as these are, and the rest is written into what they leave.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flatout.edits.autocast import autocast
from flatout.edits.compiled_functions import compiled_functions
from flatout.edits.copies import copy_argument
from flatout.edits.line_moves import moved_loaders
from flatout.edits.loaders import loader_argument, wrapped_loader
from flatout.edits.optimizers import optimizer_argument
from flatout.edits.process_flags import anomaly_off, switch_line
from flatout.edits.reading.project import Project
from flatout.edits.reading.training_loaders import LoaderCall, loader_calls
from flatout.edits.rewrite import Unplaced
from flatout.edits.trained_model import model_line
from flatout.edits.written_diffs import write_edit_in
from flatout.edits.written_edit import Context, WrittenEdit
from flatout.fixes.core.catalog import find_fix
from flatout.fixes.core.edit import (
    AnomalyOff,
    Autocast,
    CompiledFunctions,
    CopyArgument,
    LoaderArgument,
    ModelLine,
    OptimizerArgument,
    OwnDiff,
    Piece,
    SwitchLine,
    Unwritten,
    WrappedLoader,
)
from flatout.fixes.source.source_edit import SourceEdit
from flatout.schema.facts import LoaderFacts
from flatout.schema.trial import EDITED_SOURCE, Selection

__all__ = ["EditOutcome", "write_recipe_in"]

_OfLines = (
    LoaderArgument
    | WrappedLoader
    | SwitchLine
    | ModelLine
    | OptimizerArgument
    | CopyArgument
    | AnomalyOff
    | Autocast
    | CompiledFunctions
)


@dataclass(frozen=True)
class EditOutcome:
    """What became of one fix or finding: places changed, places that had it already, what was left out and why."""

    label: str
    changed: int
    there: int
    left: tuple[str, ...]
    is_fix: bool = True


def write_recipe_in(
    project: Project, selections: Sequence[Selection], recorded: Sequence[LoaderFacts] = (), step_s: float = 0.0
) -> tuple[Project, tuple[EditOutcome, ...]]:
    """Return the project with the fixes written in it as far as that is sure, and what became of each.

    `recorded`: what a recording knows of the loaders; `step_s`: seconds that a step takes, 0 where it is not known.
    """
    given = project
    outcomes = []
    loaders: tuple[LoaderCall, ...] | None = None
    for selection in sorted(selections, key=lambda each: each.fix != EDITED_SOURCE):
        if loaders is None and selection.fix != EDITED_SOURCE:
            loaders = tuple(loader_calls(project, moved_loaders(recorded, given, project)))
        settings = {**_defaults(selection.fix), **selection.settings}
        named = frozenset(selection.settings)
        context = Context(settings=settings, loaders=loaders or (), step_s=step_s, named=named)
        done = _write(selection.fix, project, context)
        project = done.project
        outcomes.append(EditOutcome(selection.label, done.changed, done.there, tuple(dict.fromkeys(done.left))))
    return project, tuple(outcomes)


def _defaults(name: str) -> dict[str, object]:
    fix = find_fix(name)
    parameters = inspect.signature(fix.patch).parameters if fix is not None else {}
    return {each: found.default for each, found in parameters.items() if found.default is not found.empty}


def _write(name: str, project: Project, context: Context) -> WrittenEdit:
    """Write all pieces of one fix, or none: where one has no place at all, the others would be another fix."""
    fix = find_fix(name)
    pieces = fix.edit if fix is not None else ()
    if not pieces:
        return WrittenEdit(project, left=("flatout does not know how to write it in the source",))
    done = WrittenEdit(project)
    unwritten = [each for each in pieces if isinstance(each, Unwritten) and _is_meant(each, context)]
    whole = [each.reason for each in unwritten if not each.rest]
    if whole:
        return WrittenEdit(project, left=tuple(whole))
    for piece in (each for each in pieces if not isinstance(each, Unwritten)):
        one = _piece(piece, done.project, context)
        if not one.changed and not one.there:
            return WrittenEdit(project, left=(*done.left, *one.left))
        done = WrittenEdit(one.project, done.changed + one.changed, done.there + one.there, (*done.left, *one.left))
    return replace(done, left=(*done.left, *(each.reason for each in unwritten)))


def _is_meant(piece: Unwritten, context: Context) -> bool:
    known = context.named if piece.where_named else frozenset(context.settings)
    return all(name in known and context.settings[name] == value for name, value in piece.when.items())


def _piece(piece: Piece, project: Project, context: Context) -> WrittenEdit:
    if isinstance(piece, OwnDiff):
        return write_edit_in(project, SourceEdit.of(Selection(EDITED_SOURCE, context.settings)))
    if isinstance(piece, Unwritten):
        return WrittenEdit(project, left=(piece.reason,))
    try:
        return _write_piece(piece, project, context)
    except (Unplaced, RecursionError):
        return WrittenEdit(project, left=("the surrounding code does not show where to write it",))


def _write_piece(piece: _OfLines, project: Project, context: Context) -> WrittenEdit:
    match piece:
        case LoaderArgument():
            return loader_argument(piece, project, context)
        case WrappedLoader():
            return wrapped_loader(piece, project, context)
        case SwitchLine():
            return switch_line(piece, project, context)
        case ModelLine():
            return model_line(piece, project, context)
        case OptimizerArgument():
            return optimizer_argument(piece, project, context)
        case CopyArgument():
            return copy_argument(piece, project, context)
        case AnomalyOff():
            return anomaly_off(piece, project, context)
        case Autocast():
            return autocast(piece, project, context)
        case CompiledFunctions():
            return compiled_functions(piece, project, context)
