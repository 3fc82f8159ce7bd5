"""What becomes of the files that a measured run wrote: thrown away with its private copy, or put back and named.

Made by the guard before it starts the script. Where the kernel allows a private copy (`private_world.py`) the script
starts in one. Elsewhere its Python processes keep a journal, which is undone in the end; two listings tell what
changed past it. The session's notes say which of the two it was, when it was the second.
"""

import contextlib
import os
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from flatout.engine.process.listing import Listing, differences, list_places, listed_tops, sentence
from flatout.engine.process.private_world import Refused, World
from flatout.engine.process.restore import Aside, restore
from flatout.engine.process.world_places import other_disks

__all__ = ["NOTES_FILE", "Aftermath"]

NOTES_FILE = "notes.txt"
"""In the session's `files`: one note a line, for the report."""

PAST_THE_GUARD = "past-the-guard.txt"
"""Beside it: every file and folder that the listings show to have changed past the guard."""

_MOST_KEPT = 2000  # new files that are kept to be looked at
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")

Start = Callable[[Callable[[], None] | None], "subprocess.Popen[bytes]"]


class Aftermath:
    """Everything about files in one execution, from before its start to after its end."""

    def __init__(self, working: str, session: str, folder: Path, journal: str, command: Sequence[str]) -> None:
        """Take the script's working folder, the session's, the execution's and the journal's folder, the command."""
        self._working, self._session, self._folder, self._journal = working, Path(session), folder, journal
        self._command = command
        self._tops: list[str] = []
        self._before: Listing | None = None
        self._world: World | None = None
        self._reason = ""

    def start(self, start: Start) -> "subprocess.Popen[bytes]":
        """Start the script in a private copy where that can be, in the user's own files elsewhere.

        Raises:
            OSError: it cannot be started at all.
        """
        try:
            self._world = World(self._working, str(self._session), self._journal)
            process = start(self._world.enter)
        except Refused as refused:
            self._reason = str(refused)
        except (subprocess.SubprocessError, OSError) as error:
            if self._entered():
                raise
            self._reason = str((self._world and self._world.report().get("error")) or error)
        else:
            self._note_what_is_shared()
            return process
        self._give_up()
        self._tops = listed_tops(self._working, self._command, other_disks())
        self._before = list_places(self._tops)
        return start(None)

    @property
    def private(self) -> bool:
        """Whether the script has a private copy."""
        return self._world is not None

    def end(self) -> int:
        """Put the user's files back and name what changed past that; return how many acts were undone."""
        if self._world is not None:
            with contextlib.suppress(OSError):
                self._keep_written(self._world)
                self._world.keep_caches()
            self._world.remove()
        for pipe in (self._folder / "turns").glob("bell-*"):  # of processes that were ended
            with contextlib.suppress(OSError):
                pipe.unlink()
        undone, places = restore(self._folder)
        if self._before is not None:
            after = list_places(self._tops, self._before)
            working = os.path.realpath(self._working)
            named = differences(self._before, after, places, working)
            self._note(sentence(named, working, complete=self._before.complete and after.complete))
            if named:
                _append(self._session / "files" / PAST_THE_GUARD, "\n".join(named))
        return undone

    def _entered(self) -> bool:
        """Say whether the script's process was in its copy before it failed: then the command itself is at fault."""
        return self._world is not None and "namespace" in self._world.report()

    def _give_up(self) -> None:
        if self._world is not None:
            self._world.remove()
            self._world = None
        self._note(
            f"there is no private copy of the file system here ({self._reason}): what the script writes by Python is "
            "put back, what else changes is named"
        )

    def _note_what_is_shared(self) -> None:
        assert self._world is not None
        left_out = self._world.report().get("left_out", ())
        if left_out:
            told = "; ".join(f"{place} ({reason})" for place, reason in left_out[:4])
            self._note(f"no private copy of these places: {told}. What the script writes there by Python is put back")

    def _keep_written(self, world: World) -> None:
        """Move new files, as a look at what the script writes is worth it, to the recording."""
        aside = Aside(self._folder / "files", Path(self._journal))
        left = _MOST_KEPT
        for top, upper in world.uppers():
            if str(top) in _TEMPORARY and not self._working.startswith(f"{top}/"):
                continue
            for place, found in _files(upper):
                known_as = top / place.relative_to(upper)
                passing = str(top) in _TEMPORARY and not known_as.is_relative_to(self._working)
                if not left:
                    return
                kept = stat.S_ISREG(found.st_mode) and not passing and world.plan.is_private(str(known_as))
                if kept and not os.path.lexists(known_as):
                    aside.set_aside(place, known_as)
                    left -= 1

    def _note(self, text: str) -> None:
        if text:
            _append(self._session / "files" / NOTES_FILE, " ".join(text.splitlines()))


def _append(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        with open(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text + "\n")


def _files(top: Path) -> list[tuple[Path, os.stat_result]]:
    """Return the files in `top`, as many as can be kept, byte code left out."""
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            with contextlib.suppress(OSError):
                found.append((Path(folder, name), os.lstat(Path(folder, name))))
        if len(found) > 10 * _MOST_KEPT:
            break
    return found
