"""Files that tell whether they are as they were: by their device, number, size and times.

A file counts as rested once nobody has written to it for some seconds: a second write in one tick of the file system's
clock shows in none of its times. File systems of other machines tell late, and files mapped into memory need not tell.
"""

import os
import stat
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["FileIdentity", "KnownFiles", "identity_of"]

_RESTED_NS = 3_000_000_000  # since a file was written, before what is read is kept
_TELLING = frozenset(  # file systems of this machine: others may change elsewhere, and tell late
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs", "squashfs", "erofs")
)

_heard: list[str] = []  # names of modules that added audit hooks to this process

FileIdentity = tuple[int, ...]
"""Device, number, size, and times of contents and of state."""


def identity_of(file: str | int) -> FileIdentity | None:
    """Return what tells whether a file, by path or descriptor, was written or replaced; None for no plain file."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class KnownFiles:
    """Says of which files something may be kept."""

    def __init__(self, left: Callable[[str], None]) -> None:
        """Know of none yet; `left` is told why a file is left alone."""
        self._left = left
        self._mapped: set[tuple[int, ...]] = set()  # files that somebody may write to without a trace
        self._telling: dict[int, bool] = {}  # by device
        weak = weakref.ref(self)

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if event == "sys.addaudithook":
                _hear(sys._getframe(1))
            known = weak() if event == "mmap.__new__" else None
            if known is not None and args:
                known._is_mapped(args[0])

        sys.addaudithook(hook)

    def may_keep(self, file: str | int, name: str, before: FileIdentity) -> bool:
        """Return whether a file that was read just now is as it was `before`, and whether a later write would show."""
        rested = abs(time.time_ns() - max(before[3:])) > _RESTED_NS and not self.is_mapped(before)
        return rested and identity_of(file) == before and self._tells(name, before[0])

    @staticmethod
    def is_heard() -> bool:
        """Return whether somebody hears of each file that is opened: a hook was added, and none of flatout's."""
        return bool(_heard)

    def is_mapped(self, identity: FileIdentity) -> bool:
        """Return whether a file was mapped into memory by Python in this process: writes need not show in its times."""
        return identity[:2] in self._mapped

    def _is_mapped(self, number: Any) -> None:
        try:
            found = os.fstat(number)
        except (OSError, TypeError):
            return
        self._mapped.add((found.st_dev, found.st_ino))

    def _tells(self, name: str, device: int) -> bool:
        """Return whether a file lies on a file system of this machine, which tells of each write in good time."""
        if device not in self._telling:
            kind = _kind_of(device)
            self._telling[device] = kind in _TELLING
            if kind not in _TELLING:
                self._left(f"{os.path.basename(name)} lies on a file system that may tell late ({kind})")
        return self._telling[device]


def _hear(frame: Any) -> None:
    name = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    if not name.startswith("flatout."):
        _heard.append(name)


def _kind_of(device: int) -> str:
    """Return the kind of the file system on a device, "unknown" where the system does not tell."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.split()
                if words[2] == wanted:
                    return words[words.index("-") + 1]
    except (OSError, ValueError, IndexError):
        pass
    return "unknown"
