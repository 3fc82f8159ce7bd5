"""A tune that was interrupted, looked at before it is taken up: its folder may have come with somebody's project."""

import os
import stat
from pathlib import Path

from flatout.engine.recipe import check_selection
from flatout.engine.trial.journal import TrialJournal
from flatout.errors import FlatoutError
from flatout.fixes.core.catalog import find_fix
from flatout.schema.codec import RUN_FILE, read_run
from flatout.schema.run import Run

__all__ = ["taken_up"]

_MOST_ENTRIES = 100_000


def taken_up(folder: Path) -> tuple[Run | None, str]:
    """Return the recording of an unfinished tune, or None and why it is not gone on with; no reason: nothing to say.

    Files are written into that folder, and fixes that its trials name are applied: so all of it has to be this
    user's, with no links in it, and every setting within its bounds.
    """
    odd = _odd_entry(folder)
    if odd:
        return None, f"{folder} holds an unfinished tune and is left alone: {odd}"
    try:
        run = read_run(folder / RUN_FILE)
    except FlatoutError:  # killed during the diagnosis
        return None, ""
    try:
        for trial in TrialJournal(folder).read():
            if find_fix(trial.candidate.selection.fix) is not None:
                check_selection(trial.candidate.selection, folder / "trials.jsonl")
    except (FlatoutError, OSError) as error:
        return None, f"{folder} holds an unfinished tune and is left alone: {error}"
    return run, ""


def _odd_entry(folder: Path) -> str:
    """Return what in a folder cannot be ours, empty where everything may be."""
    if any(place.is_symlink() for place in (folder, folder.parent)):
        return "it is reached through a link"
    for number, path in enumerate((folder, *folder.rglob("*"))):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        plain = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
        if not plain:
            return f"{path.name} is a link, or not a file"
        if found.st_uid != os.geteuid():
            return f"{path.name} belongs to another user"
        if number > _MOST_ENTRIES:
            return f"it holds more than {_MOST_ENTRIES} files"
    return ""
