"""Stands for a text file that the script opens, writes and closes again and again: it is opened once for many.

It is the lowest layer of such a file, below Python's own buffer and text: what comes here would go to the system. It
opens the file in earnest where more than writing and closing is asked for, or where somebody else has the file.
"""

import io
import os
import weakref
from typing import Any

from flatout.fixes.text_files.text_file import GatheringHandle, TextFile
from flatout.fixes.text_files.write_behind import WriteBehind

__all__ = ["GatheredWriter"]

_MOST_BYTES = 8 << 20  # of a file, that wait

_open = os.open  # as it is before a fix wraps it


class _InEarnest(io.RawIOBase):
    """What needs an open file."""

    def opened(self) -> io.FileIO:
        """Open the file in earnest."""
        raise NotImplementedError

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.opened().fileno()

    def seek(self, place: int, whence: int = 0, /) -> int:
        """Go to a place in the file."""
        return self.opened().seek(place, whence)

    def truncate(self, size: int | None = None, /) -> int:
        """Cut the file."""
        return self.opened().truncate(size)

    def writable(self) -> bool:
        """Return that it can be written to."""
        return True

    def seekable(self) -> bool:
        """Return that a file has places."""
        return True


class GatheredWriter(_InEarnest):
    """Takes what is written, for a file that is known.

    Attributes:
        is_made: the layers above are there: what asks from now on is the script.
    """

    def __init__(self, file: TextFile, behind: WriteBehind, name: Any, *, appends: bool) -> None:
        """Begin a file that was just opened; `name`: as the script gave it."""
        super().__init__()
        self.name, self.mode, self.is_made = name, "ab" if appends else "wb", False
        self._file, self._behind, self._appends = file, behind, appends
        self._real: io.FileIO | None = None
        self._num_bytes = 0  # that came from here
        self._ref: weakref.ref[GatheringHandle] = weakref.ref(self)
        with behind.lock:
            file.gathering = self._ref
            if not appends:
                file.gather(None)
                behind.add(file)

    def write(self, data: Any, /) -> int | None:
        """Take bytes."""
        if self.closed:
            raise ValueError("write to closed file")
        with self._behind.lock:
            if self._real is None and self._is_alone():
                self._file.raise_error()
                copied = bytes(data)
                self._file.gather(copied)
                self._num_bytes += len(copied)
                self._behind.add(self._file)
                if self._file.num_bytes > _MOST_BYTES:
                    self._behind.write(self._file)
                return len(copied)
            return self.opened().write(data)

    def _is_alone(self) -> bool:
        """Return whether nobody else has the file, and text may wait."""
        file = self._file
        return self._behind.waits and not (file.looked or file.num_open) and file.looks_left > 0

    def close(self) -> None:
        """Be done."""
        if self.closed:
            return
        try:
            super().close()
        finally:
            with self._behind.lock:
                if self._file.gathering is self._ref:
                    self._file.gathering = None
            if self._real is not None:
                self._real.close()

    def tell(self) -> int:
        """Return the place in the file."""
        return self.opened().tell() if self.is_made else int(self._appends)

    def opened(self) -> io.FileIO:
        """Open the file in earnest, with everything in it that was written so far."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        with self._behind.lock:
            if self._real is None:
                self._file.looked = True
                self._behind.write(self._file)
                self._file.raise_error()
                how = os.O_WRONLY | os.O_CLOEXEC | (os.O_APPEND if self._appends else 0)
                with self._behind.threads.quietly():
                    number = _open(self._file.path, how)
                self._real = io.FileIO(number, self.mode)
                if not self._appends:
                    self._real.seek(self._num_bytes)
            return self._real
