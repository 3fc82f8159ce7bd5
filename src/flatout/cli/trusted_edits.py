"""Edits of a recipe that `flatout run` may serve: the user's own, of files that are as they were."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.engine.process.edit_seal import allow, is_trusted
from flatout.engine.process.target import Target
from flatout.fixes.source.source_edit import SourceEdit, edited_files
from flatout.schema.order import EditedFile
from flatout.schema.recipe import Kept
from flatout.schema.trial import COMPILED_PYTHON, EDITED_SOURCE

__all__ = ["Served", "served_edits"]


@dataclass(frozen=True, slots=True)
class Served:
    """What acts of a recipe: its fixes, what its edits make of their files; a sentence on each edit that does not."""

    kept: tuple[Kept, ...]
    files: tuple[EditedFile, ...]
    left: tuple[str, ...]


def served_edits(kept: Sequence[Kept], target: Target, recipe: Path, *, allow_edits: bool) -> Served:
    """Return what acts of `kept`, the fixes of the file `recipe`; `allow_edits`: the user says yes to its edits."""
    if not any(_is_served(each) for each in kept):
        return Served(tuple(kept), (), ())
    if allow_edits:
        for each in filter(_is_edit, kept):
            allow(each)
    trusted = [each for each in kept if allow_edits or is_trusted(each)]
    folders = (*target.folders, recipe.absolute().parent)
    found = edited_files([each.selection for each in trusted], folders)
    acting = tuple(each for each in trusted if not (_is_served(each) and _name(each) in found.dropped))
    foreign = [
        f"{each.selection.label} is left out: it is code that your own `flatout tune` did not make; read it with"
        f" `flatout patch {target.name}`, then say yes with `flatout run --allow-edits {target.name}`"
        for each in kept
        if each not in trusted
    ]
    kinds = {name: "" if name == COMPILED_PYTHON else "edit " for name in found.dropped}
    dropped = [f"{kinds[name]}{name} is left out: {reason}" for name, reason in found.dropped.items()]
    return Served(acting, found.files, (*foreign, *dropped))


def _is_edit(kept: Kept) -> bool:
    return kept.selection.fix == EDITED_SOURCE


def _is_served(kept: Kept) -> bool:
    """Return whether files of the script are served with another text: by an edit, or with compiled functions."""
    return _is_edit(kept) or kept.selection.fix == COMPILED_PYTHON


def _name(kept: Kept) -> str:
    return COMPILED_PYTHON if kept.selection.fix == COMPILED_PYTHON else SourceEdit.of(kept.selection).name
