"""What a flatout that was killed left behind: files to put back, rooms, locks and pipes to clear away.

Looked for at every start. Only what this user's own flatout has claimed is followed
(`flatout.engine.process.journal_claims`).
"""

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from flatout.engine.process.aftermath import NOTES_FILE
from flatout.engine.process.guard import GUARD_LOCK, end_left_over
from flatout.engine.process.journal_claims import Claim, claims, drop, held, misfit
from flatout.engine.process.private_folders import remove_left_over_rooms
from flatout.engine.process.restore import restore_files
from flatout.engine.process.run_folder import remove_left_over_locks
from flatout.schema.codec import RUN_FILE

__all__ = ["refusals", "restore_left_over", "settle_left_over"]

_DEPTHS = ("*/*", "*/*/trials/*")  # of a diagnosis, of one execution of a trial
_LONGEST_NOTE = 2000

Tell = Callable[[str], None]


def settle_left_over(out: Path | None, tell: Tell) -> list[str]:
    """Put back and clear away what a killed run left here; return what there is to say about it.

    Raises:
        UsageError: a guard that outlived its flatout does not come to an end.
    """
    told = [f"files that a killed run had changed were restored from {old}" for old in restore_left_over(out, tell)]
    remove_left_over_rooms()
    remove_left_over_locks()
    top = out if out is not None else Path(".flatout")
    _remove_pipes(top)
    return [*told, *refusals(out), *_untold(top)]


def restore_left_over(out: Path | None, tell: Tell = lambda _: None) -> list[Path]:
    """Put back files that an execution killed together with its guards left changed; return the folders it was in.

    Only journals in the user's own state folder count, and of them those of this project (`out` or the working folder).
    `tell` hears who is waited for.

    Raises:
        UsageError: a guard that outlived its flatout does not come to an end.
    """
    found = []
    for journal, claim in claims():
        if not _is_here(claim, out):
            continue
        folder = Path(claim.folder)
        with contextlib.suppress(OSError), held(journal, tell):  # a guard that outlived its flatout restores by itself
            if misfit(claim):
                continue  # told by `refusals`
            end_left_over(folder)
            if restore_files(folder):
                found.append(folder)
            (folder / GUARD_LOCK).unlink(missing_ok=True)
            drop(journal)
    return found


def refusals(out: Path | None) -> list[str]:
    """Return one line for each journal that is not followed, and forget those of this user's that fit nothing now.

    Called after `restore_left_over`.
    """
    told = []
    for journal, claim in claims():
        reason = misfit(claim)
        if reason and (_is_here(claim, out) or _identity(os.getcwd()) == tuple(claim.project_id)):
            told.append(f"nothing was restored from a run that was killed: {reason}")
            drop(journal)
    top = out if out is not None else Path(".flatout")
    foreign = sorted(place for depth in _DEPTHS for place in top.glob(f"{depth}/files/journal"))
    if foreign:
        told.append(
            f"{foreign[0]} is not a journal of yours ({len(foreign)} such in {top}): it came with the folder, or from "
            "an older flatout; nothing was restored from it"
        )
    return told


def _untold(top: Path) -> list[str]:
    """Return once what guards wrote down in sessions that were killed before they could tell it."""
    told = []
    for notes in sorted(top.glob(f"*/*/files/{NOTES_FILE}")):
        session = notes.parents[1]
        with contextlib.suppress(OSError):
            found = notes.lstat()
            if (session / RUN_FILE).exists() or not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                continue
            text = notes.read_text(encoding="utf-8", errors="replace")[:_LONGEST_NOTE]
            notes.rename(notes.with_name("notes-told.txt"))
            lines = dict.fromkeys("".join(filter(str.isprintable, line)) for line in text.splitlines())
            told += [f"of the run in {session}, which was killed: {line}" for line in lines if line]
    return told


def _remove_pipes(top: Path) -> None:
    """Remove the named pipes by which two processes of a trial wake each other."""
    for place in top.glob("*/*/trials/*/turns/bell-*"):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(place.lstat().st_mode):
                place.unlink()


def _is_here(claim: Claim, out: Path | None) -> bool:
    top = os.path.realpath(os.getcwd() if out is None else out)
    return claim.project == top or claim.folder.startswith(os.path.join(top, ""))


def _identity(place: str) -> tuple[int, int]:
    found = os.stat(place)
    return found.st_dev, found.st_ino
