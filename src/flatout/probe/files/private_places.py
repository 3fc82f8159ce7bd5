"""Places of which a measured process has a private copy, as its guard's world has told.

Standard library only: it is asked before torch is there.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterable

__all__ = ["PrivatePlaces"]

_WORLD_FILE = "world.json"  # written by `flatout.engine.process.private_world`


class PrivatePlaces:
    """Answers whether what lies at a path is this process's own copy."""

    def __init__(self, private: Iterable[str] = (), shared: Iterable[str] = (), *, renames: bool = True) -> None:
        """Take what is private and what is shared: the deepest that a path lies in decides.

        `renames`: folders of the user's can be renamed in the copy. Overlays of a user namespace refuse it (EXDEV).
        """
        both = {**dict.fromkeys(private, True), **dict.fromkeys(shared, False)}
        self._places = sorted(((place.rstrip(os.sep) + os.sep, own) for place, own in both.items()), key=_depth)
        self._renames = renames

    @classmethod
    def of(cls, journal: str) -> "PrivatePlaces":
        """Return the places of this process; none where it was started outside of the world that was prepared."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(os.path.join(journal, _WORLD_FILE), encoding="utf-8") as file:
                told = json.load(file)
            if told["namespace"] == os.readlink("/proc/self/ns/mnt"):
                return cls((place for place, _, _ in told["private"]), told["shared"], renames=told["renames"])
        return cls()

    def __bool__(self) -> bool:
        return bool(self._places)

    def __contains__(self, place: str) -> bool:
        return next((own for top, own in self._places if place.startswith(top)), False)

    def make_movable(self, folder: str) -> None:
        """Copy a folder that lies in the user's files still, so that it can be renamed here as it could be there.

        What stands in the way of that is for the script's own call to tell.
        """
        if self._renames or folder not in self or os.path.islink(folder) or not os.path.isdir(folder):
            return
        trial = f"{folder}.flatout-{os.getpid()}"
        with contextlib.suppress(OSError):
            try:
                os.rename(folder, trial)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    return
                shutil.copytree(folder, trial, symlinks=True)
                shutil.rmtree(folder)
            os.rename(trial, folder)


def _depth(place: tuple[str, bool]) -> int:
    return -len(place[0])
