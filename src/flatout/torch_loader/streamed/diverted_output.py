"""What a forked process would print, write to open files or send, kept in memory instead, and seen.

Files that are open for reading get a place of their own: read here, they stay where they are in the script's process.
"""

import contextlib
import fcntl
import os
import stat
import sys
from collections.abc import Collection

__all__ = ["DivertedOutput"]


class DivertedOutput:
    """The descriptors of this process, cut off from those of the process that it was forked from."""

    def __init__(self, kept: Collection[int]) -> None:
        """Cut them off, all but those of `kept`."""
        self._memory = os.memfd_create("flatout")
        for number in map(int, os.listdir("/proc/self/fd")):
            if number in kept or number == self._memory:
                continue
            with contextlib.suppress(OSError):  # closed by now
                _cut_off(number, self._memory)
        self._seen = 0
        self.forget()

    def forget(self) -> None:
        """Take what was written so far for nothing."""
        _flush()
        self._seen = os.fstat(self._memory).st_size

    @property
    def written(self) -> bool:
        """Return whether something was written since."""
        _flush()
        return os.fstat(self._memory).st_size > self._seen


def _cut_off(number: int, memory: int) -> None:
    mode, flags = os.fstat(number).st_mode, fcntl.fcntl(number, fcntl.F_GETFL)
    reads = flags & os.O_ACCMODE == os.O_RDONLY
    if number in (1, 2) or stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode) or (not reads and _is_file(number, mode)):
        os.dup2(memory, number)
    elif reads and stat.S_ISREG(mode):
        own = os.open(f"/proc/self/fd/{number}", flags)
        os.lseek(own, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(own, number)
        os.close(own)


def _is_file(number: int, mode: int) -> bool:
    return stat.S_ISREG(mode) or os.isatty(number)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or there is none
            stream.flush()
