"""Stands for a text file that the script opens, writes and closes again and again: it is opened once for many.

It opens the file in earnest where more than writing and closing is asked for, with everything in it that was written.
"""

import io
import os
from abc import abstractmethod
from typing import Any

from flatout.fixes.text_files.text_file import TextFile
from flatout.fixes.text_files.write_behind import WriteBehind

__all__ = ["GatheredWriter"]

_MOST_BYTES = 8 << 20  # of a file, that wait

_open = os.open  # as it is before a fix wraps it


class _InEarnest(io.BufferedIOBase):
    """What needs an open file."""

    @abstractmethod
    def opened(self) -> io.BufferedWriter:
        """Open the file in earnest."""

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.opened().fileno()

    def seek(self, place: int, whence: int = 0, /) -> int:
        """Go to a place in the file."""
        return self.opened().seek(place, whence)

    def truncate(self, size: int | None = None, /) -> int:
        """Cut the file."""
        return self.opened().truncate(size)

    def detach(self) -> Any:
        """Give up the layer below."""
        return self.opened().detach()

    @property
    def raw(self) -> Any:
        """The layer below."""
        return self.opened().raw

    def writable(self) -> bool:
        """Return that it can be written to."""
        return True

    def seekable(self) -> bool:
        """Return that a file has places."""
        return True


class GatheredWriter(_InEarnest):
    """Takes what is written, for a file that is known.

    Attributes:
        is_made: the text layer above is there: what asks from now on is the script.
    """

    def __init__(self, file: TextFile, behind: WriteBehind, name: Any, *, appends: bool) -> None:
        """Begin a file that was just opened; `name`: as the script gave it."""
        self.name, self.mode, self.is_made = name, "ab" if appends else "wb", False
        self._file, self._behind, self._appends = file, behind, appends
        self._real: io.BufferedWriter | None = None
        self._is_closed, file.is_gathered = False, True
        if not appends:
            file.gather(None)
            behind.add(file)

    def write(self, data: Any, /) -> int:
        """Take bytes."""
        if self._real is not None:
            return self._real.write(data)
        if self._is_closed:
            raise ValueError("write to closed file")
        copied = bytes(data)
        self._file.gather(copied)
        if self._file.num_bytes > _MOST_BYTES:
            self._behind.write(self._file)
        return len(copied)

    def flush(self) -> None:
        """Have what was written so far in the file within a moment."""
        if self._real is None and (self._file.looked or not self._behind.waits):
            self.opened()
        if self._real is not None:
            self._real.flush()
        else:
            self._file.raise_error()
            self._behind.add(self._file)

    def close(self) -> None:
        """Be done."""
        if self._is_closed:
            return
        try:
            self.flush()
        finally:
            self._is_closed, self._file.is_gathered = True, False
            if self._real is not None:
                self._real.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def tell(self) -> int:
        """Return the place in the file."""
        return self.opened().tell() if self.is_made else int(self._appends)

    def opened(self) -> io.BufferedWriter:
        """Open the file in earnest, with everything in it that was written so far."""
        if self._is_closed:
            raise ValueError("I/O operation on closed file")
        if self._real is None:
            self._file.looked = True
            self._behind.write(self._file)
            self._file.raise_error()
            number = _open(self._file.path, os.O_WRONLY | os.O_CLOEXEC | (os.O_APPEND if self._appends else 0))
            self._real = io.BufferedWriter(io.FileIO(number, self.mode))
            self._real.seek(0, os.SEEK_END)
        return self._real
