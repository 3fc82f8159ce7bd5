"""An open text file whose `flush` and `fsync` are done a moment later.

It is Python's own writer with another `flush`. Who asks for the descriptor, or for the layers below, gets them with
everything written, and from then on every flush is done at once: what is done with a descriptor is not seen. Only the
expression `os.fsync(file.fileno())` shows what becomes of it.
"""

import dis
import functools
import io
import os
import sys
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from flatout.fixes.text_files.text_file import TextFile, place_of
from flatout.fixes.text_files.write_behind import WriteBehind

__all__ = ["DeferredWriter", "deferred_sync"]

_by_number: "weakref.WeakValueDictionary[int, DeferredWriter]" = weakref.WeakValueDictionary()
"""The files of this kind, by the descriptors that were asked for."""


_Call = tuple[int, CodeType, int]
"""A call that is being made: of which frame, in which code, at which place."""


class _EndingWriter(io.BufferedWriter):
    """A writer whose text waits no more once somebody asks for what cannot be told then."""

    _ends = False  # text waits no more
    _waits = _appends = False

    def settle(self) -> None:
        """Write what waits."""
        raise NotImplementedError

    @property
    def raw(self) -> Any:  # type: ignore[override]
        """The layer below, with everything written."""
        self._end()
        return super().raw

    def detach(self) -> Any:
        """Give up the layer below, with everything written."""
        self._end()
        return super().detach()

    def seek(self, place: int, whence: int = 0, /) -> int:
        """Go to a place; what is appended goes elsewhere, so that `tell` is right only once that is written."""
        found = super().seek(place, whence)
        self._ends = self._ends or (self._appends and whence != os.SEEK_END)
        return found

    def truncate(self, size: int | None = None, /) -> int:
        """Cut the file; what is appended then begins elsewhere than this handle is."""
        found = super().truncate(size)
        self._ends = self._ends or self._appends
        return found

    def _end(self) -> None:
        """Write what waits, and let nothing wait from now on."""
        self._ends = True
        if self._waits:
            self.settle()


class DeferredWriter(_EndingWriter):
    """Writes to a file that is open, as its base class does, but for when it does."""

    _syncs = False
    _asked: _Call | None = None  # the call that asked for the descriptor last
    _file: TextFile | None = None

    def __init__(
        self, behind: WriteBehind, sync: Callable[[int], None], raw: io.FileIO, path: str, num_bytes: int
    ) -> None:
        """Write to `raw`; `sync` is `os.fsync` as it is without us, `num_bytes` the size of the buffer."""
        super().__init__(raw, num_bytes)
        self._path, self._behind, self._sync = path, behind, sync
        self._appends = "a" in raw.mode
        if behind.pending:
            with behind.lock:
                self._count(behind.pending.get(place_of(raw.fileno())))

    def flush(self) -> None:
        """Have what was written so far in the file within a moment.

        Raises:
            OSError: it cannot be written, or could not be synced before.
        """
        if self._file is not None and self._file.error is not None:
            self._file.raise_error()
        if self._asked is not None:
            self._ends, self._asked = True, None
        if self._waits and not self._ends:
            return
        if self._ends or not self._may_wait():
            self._follow()
            super().flush()
        else:
            self._begin()

    def settle(self) -> None:
        """Write what waits.

        Raises:
            OSError: it cannot be written: the next flush tries again, and tells the script. Or it cannot be synced:
                whoever flushes, syncs, closes or opens the file next is told.
        """
        if not self._waits:
            return
        self._waits = False
        if self.closed:
            return
        syncs, self._syncs = self._syncs, False
        try:
            super().flush()
        except OSError:
            self._ends = True
            raise
        if syncs:
            self._sync_now()

    def _sync_now(self) -> None:
        try:
            self._sync(super().fileno())
        except OSError as error:  # which the script asked for, and went on
            self._ends = True
            if self._file is not None:
                self._file.error = error
            raise

    def forget(self) -> None:
        """Let nothing wait any more."""
        self._waits = self._syncs = False
        self._ends = True

    def sync_later(self, frame: FrameType | None, number: int) -> bool:
        """Have the file synced within a moment; return False where its descriptor may be in somebody's hands.

        `frame`: who calls `os.fsync(file.fileno())`, with the descriptor that he got from here in the same breath.
        """
        asked, self._asked = self._asked, None
        if self._file is not None:
            self._file.raise_error()
        if asked is None or self._ends or frame is None or not _is_next_call(asked, frame):
            self._ends = self._ends or asked is not None
            return False
        if super().fileno() != number or not self._may_wait():
            return False
        assert self._file is not None
        self._syncs = self._file.is_synced = True
        self._begin()
        return True

    def close(self) -> None:
        """Write everything, and close the file."""
        is_open, self._ends = not self.closed, True
        try:
            if is_open and self._file is not None:
                self._file.raise_error()
                if self._syncs:
                    super().flush()
                    self._syncs = False
                    self._file.sync_later(super().fileno(), self._sync)
                    self._behind.add(self._file)
        finally:
            try:
                self._follow()
                super().close()
            finally:
                if is_open and self._file is not None:
                    self._file.num_open -= 1

    def fileno(self) -> int:
        """Return the descriptor, with everything written."""
        number = super().fileno()
        if self._waits:
            super().flush()
        frame = sys._getframe(1)
        self._asked = id(frame), frame.f_code, frame.f_lasti
        _by_number[number] = self
        return number

    def _follow(self) -> None:
        """In a forked process: write only once the other one has written what it had before."""
        if self._file is not None and self._behind.is_forked:
            self._behind.wait(self._file.places[0])

    def _begin(self) -> None:
        assert self._file is not None
        self._waits = True
        self._file.add_writer(self)
        self._behind.add(self._file)

    def _may_wait(self) -> bool:
        if not self._behind.waits:
            return False
        if self._file is None:
            with self._behind.lock:
                self._count(self._behind.file(self._path, super().fileno()))
        if self._file is None or not self._file.may_wait:
            self._ends = True
            return False
        return True

    def _count(self, file: TextFile | None) -> None:
        """Note that there is one more who has a file open: text of others is gathered only while nobody has."""
        if file is not None:
            self._file = file
            file.num_open += 1
            if file.num_bytes:
                self._behind.write(file)


def deferred_sync(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return what stands for `os.fsync`."""

    def fsync(fd: Any) -> None:
        number = fd if type(fd) is int else -1
        writer = _by_number.get(number)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and str(frame.f_globals.get("__name__")).startswith("flatout."):
            frame = frame.f_back
        if writer is None or writer.closed or not writer.sync_later(frame, number):
            original(fd)

    return fsync


def _is_next_call(asked: _Call, frame: FrameType) -> bool:
    """Return whether a frame makes the call that takes what another call of it has just returned, and nobody else."""
    of, code, first = asked
    return of == id(frame) and code is frame.f_code and _is_given_on(code, first, frame.f_lasti)


@functools.lru_cache(maxsize=256)
def _is_given_on(code: CodeType, first: int, second: int) -> bool:
    """Return whether nothing happens between two calls in a function: `second(first())`."""
    names: list[str] = []
    at = {}
    is_begun = False
    for each in dis.get_instructions(code, show_caches=True):
        if each.opname != "CACHE":  # which belongs to what is before it
            names += [] if is_begun else [each.opname]
            names[-1] = each.opname
            is_begun = each.opname in ("PRECALL", "EXTENDED_ARG")  # parts of what is behind them
        at[each.offset] = len(names) - 1
    calls = at.get(first, -1), at.get(second, -1)
    return calls[0] + 1 == calls[1] > 0 and all(names[each].startswith("CALL") for each in calls)
