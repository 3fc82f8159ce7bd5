"""What a tune leaves on disk while it works: every trial as it ends, and what is needed to go on after a kill.

`trials.jsonl` holds one trial a line. `tune.json` says whose trials they are and whether the tune came to its end.
Both lie in the run's folder, so an interrupted tune is found again by looking for the newest `tune.json` of the same
command line and the same script that is not finished.
"""

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flatout.engine.process.target import Target
from flatout.errors import BadRecording
from flatout.schema.files import read_whole
from flatout.schema.plain import from_plain, to_plain
from flatout.schema.recipe import Recipe
from flatout.schema.trial import Comparison, Trial, Untried

__all__ = [
    "SCHEMA",
    "STATE_FILE",
    "TRIALS_FILE",
    "TrialJournal",
    "TuneState",
    "find_unfinished",
    "read_state",
    "write_state",
]

SCHEMA = 1
STATE_FILE = "tune.json"
TRIALS_FILE = "trials.jsonl"

_LARGEST_BYTES = 256 * 1024 * 1024  # a larger journal is none of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneState:
    """One tune: what it was asked, and in the end what it gave."""

    command: tuple[str, ...]
    script: str  # as people know it
    digest: str  # of the script's file
    started: str  # ISO, UTC
    budget_s: float
    asked: Mapping[str, object] = field(default_factory=dict)  # whatever else decides which recipe comes out
    finished: bool = False
    recipe: Recipe | None = None
    confirmation: Comparison | None = None
    untried: tuple[Untried, ...] = ()
    schema: int = SCHEMA


class TrialJournal:
    """The trials of one tune, in a file that grows by one line with each."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, which exists; nothing is written before the first trial."""
        self.path = folder / TRIALS_FILE

    def append(self, trial: Trial) -> None:
        """Write `trial` and wait until the disk has it; a line that a kill cut off is removed first.

        Raises:
            OSError: it could not be written, for instance because the disk is full; no half line is left then.
        """
        line = json.dumps(to_plain(trial), separators=(",", ":"), ensure_ascii=True).encode() + b"\n"
        with self.path.open("ab", buffering=0) as file:
            end = self._complete_bytes()
            file.truncate(end)
            try:
                while line:
                    line = line[file.write(line) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise
        if not end:
            _sync_folder(self.path.parent)

    def read(self) -> tuple[Trial, ...]:
        """Return the trials that were written whole, in their order; a last line that was cut off is left out.

        Raises:
            BadRecording: a line that was written whole is no trial.
        """
        try:
            lines = self._bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return ()
        return tuple(self._trial(number, line) for number, line in enumerate(lines, start=1))

    def _trial(self, number: int, line: bytes) -> Trial:
        try:
            found: Trial = from_plain(Trial, json.loads(line))
        except (ValueError, RecursionError) as error:
            raise BadRecording(
                f"Line {number} of {self.path} is not a trial: {error}.",
                "The file was changed, or another version of flatout wrote it.",
                "Move its folder away to start a new tune.",
            ) from None
        return found

    def _bytes(self) -> bytes:
        if self.path.stat().st_size > _LARGEST_BYTES:
            raise BadRecording(f"{self.path} is too large to be a journal of trials.")
        return read_whole(self.path, _LARGEST_BYTES)

    def _complete_bytes(self) -> int:
        """Return how many bytes there are up to the end of the last whole line."""
        return self._bytes().rfind(b"\n") + 1


def write_state(folder: Path, state: TuneState) -> None:
    """Write `state` into `folder`, first beside its place and then in it, so that no half file is ever seen."""
    partial = folder / f"{STATE_FILE}.partial"
    with partial.open("w", encoding="utf-8") as file:
        json.dump(to_plain(state), file, indent=1, ensure_ascii=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / STATE_FILE)
    _sync_folder(folder)


def read_state(folder: Path) -> TuneState | None:
    """Return what `write_state` wrote into `folder`; None when there is no such file, or none that can be read."""
    try:
        state: TuneState = from_plain(TuneState, json.loads(read_whole(folder / STATE_FILE)))
    except (OSError, ValueError, RecursionError):
        return None
    return state if state.schema == SCHEMA else None


def find_unfinished(top: Path, target: Target, digest: str, asked: Mapping[str, object] | None = None) -> Path | None:
    """Return the folder of the newest tune of `target` that did not come to its end, None when there is none.

    Args:
        top: the folder that recordings are kept under, `.flatout` or that of `--out`.
        target: the command line that is to be tuned.
        digest: of the script's file as it is now; trials of another version of it are worth nothing.
        asked: what else decides which recipe comes out; None where that does not matter.
    """
    for folder in sorted((file.parent for file in top.glob(f"{target.slug}/*/{STATE_FILE}")), reverse=True):
        state = read_state(folder) if _is_plain(folder, top) else None
        if state is None or state.finished or (state.command, state.digest) != (target.command, digest):
            continue
        if asked is None or state.asked == to_plain(asked):
            return folder
    return None


def _is_plain(folder: Path, top: Path) -> bool:
    """Say whether a tune's folder and files are no links or pipes, as may have come with the project."""
    names = (STATE_FILE, TRIALS_FILE, f"{STATE_FILE}.partial", "trials", "parts", "files", "run.jsonl", "report.html")
    tops = [top] if top.name == ".flatout" else []  # another one was named by the user
    places = [*tops, folder.parent, folder, *(folder / name for name in (*names, "report.json"))]
    found = [place.lstat().st_mode for place in places if os.path.lexists(place)]
    return all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) for mode in found)


def _sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's list of files; a file system that cannot do that is left alone."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
