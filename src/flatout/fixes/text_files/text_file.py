"""One text file of the script's whose text may be written a moment later than the script flushes it.

It is known by its inode and those of the folders above it, so that it is recognized under any path.
"""

import os
import stat
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

__all__ = ["FileWriter", "GatheringHandle", "TextFile", "identity", "place_of", "places_of"]

_MOST_LOOKS = 8  # of somebody at one file; whoever looks more often gains nothing from text that waits
_OPEN_FILES, _MAPPED = "/proc/self/fd", "/proc/self/maps"

_stat, _fstat, _open, _write = os.stat, os.fstat, os.open, os.write  # as they are before a fix wraps them


class FileWriter(Protocol):
    """An open file whose text waits."""

    def settle(self) -> None:
        """Write it."""

    def forget(self) -> None:
        """Leave it to another process."""


class GatheringHandle(Protocol):
    """Takes text of a file without having it open."""

    def opened(self) -> object:
        """Open the file in earnest."""


class TextFile:
    """What waits of one file: text that open writers have flushed, text that was gathered, a sync.

    Text is gathered only while no writer has the file open, so that there is never some of both.

    Attributes:
        path: absolute, without symbolic links.
        places: the file itself and the folders that it lies in.
        looked: somebody may have opened it, or may see it otherwise, since that was found out last.
        looks_left: how often somebody may look until nothing of it waits any more.
        num_open: how many writers of ours have it open.
        gathering: a handle of ours that takes text without having it open.
        num_bytes: how much was gathered; that a file is to be emptied counts as one.
        is_synced: the script asks for its descriptor to sync it, and for nothing else.
        error: what went wrong when it was written or synced, and the script does not know yet.
    """

    def __init__(self, path: str, places: tuple[str, ...]) -> None:
        """Nothing waits; who else has the file is not known."""
        self.path, self.places = path, places
        self.looked, self.num_open, self.num_bytes = True, 0, 0
        self.gathering: weakref.ref[GatheringHandle] | None = None
        self.looks_left = _MOST_LOOKS
        self._writers: dict[int, weakref.ref[FileWriter]] = {}
        self._parts: deque[bytes | None] = deque()  # None: the file is emptied
        self.is_synced = False
        self._sync: tuple[int, Callable[[int], None]] | None = None  # a descriptor to be synced and closed, and by what
        self.error: OSError | None = None

    @property
    def may_wait(self) -> bool:
        """Whether nobody in this process can see the file without being noticed."""
        if self.looked and self.looks_left:
            self.looks_left -= 1
            held = _is_held(self.places[0], self.num_open + (self._sync is not None))
            self.looked = held or not _is_at(self.path, self.places[0])
            if self.looked:
                self.retire()
        return self.looks_left > 0 and self.num_open <= 1 and self.gathering is None

    def retire(self) -> None:
        """Let nothing of it wait any more: who looks at it is not noticed."""
        self.looks_left = 0

    def add_writer(self, writer: FileWriter) -> None:
        """Have what an open writer holds written at the next settling."""
        self._writers[id(writer)] = weakref.ref(writer)

    def gather(self, part: bytes | None) -> None:
        """Take text that is appended; None: the file is emptied first."""
        if part is None:
            self._parts.clear()
            self.num_bytes = 0
        self._parts.append(part)
        self.num_bytes += 1 if part is None else len(part)

    def sync_later(self, number: int, sync: Callable[[int], None]) -> None:
        """Have the file synced at the next settling: once, however often it is asked for.

        Raises:
            OSError: there is no descriptor left.
        """
        if self._sync is None:
            self._sync = os.dup(number), sync

    def settle(self) -> None:
        """Write what waits.

        Raises:
            OSError: it cannot be written. What an open writer holds stays there; gathered text is lost.
        """
        try:
            if self._parts:
                self._write_gathered()
        finally:
            try:
                while self._writers:
                    writer = self._writers.popitem()[1]()
                    if writer is not None:
                        writer.settle()
            finally:
                self._sync_closed()

    def forget(self) -> None:
        """Drop what waits: the process that this one is forked from writes it."""
        for ref in list(self._writers.values()):
            writer = ref()
            if writer is not None:
                writer.forget()
        self._writers.clear()
        self._parts.clear()
        if self._sync is not None:
            os.close(self._sync[0])
            self._sync = None

    def raise_error(self) -> None:
        """Raise, once, what went wrong when it was written or synced and could not be told at once."""
        error, self.error = self.error, None
        if error is not None:
            self.retire()
            raise error

    def _sync_closed(self) -> None:
        """Sync the file where a writer that is closed by now was asked to."""
        waiting, self._sync = self._sync, None
        if waiting is None:
            return
        number, sync = waiting
        try:
            sync(number)
        except OSError as error:
            self.error = error
            raise
        finally:
            os.close(number)

    def _write_gathered(self) -> None:
        text: list[bytes] = []
        empties, self.num_bytes = False, 0
        while self._parts:
            part = self._parts.popleft()
            if part is None:
                text, empties = [], True
            else:
                text.append(part)
        left, is_open, is_joined = memoryview(b""), False, False
        try:
            left, is_joined = memoryview(b"".join(text)), True
            how = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND | (os.O_TRUNC if empties else 0)
            number = _open(self.path, how, 0o666)
            is_open = True
            try:
                while left.nbytes:
                    left = left[_write(number, left) :]
            finally:
                os.close(number)
        except OSError as error:
            self.error = error
            raise
        except BaseException:  # Ctrl-C, out of memory: what is left is written later
            rest = [bytes(left)] if is_joined else text
            waiting = [*([None] if empties and not is_open else []), *filter(None, rest)]
            self._parts.extendleft(reversed(waiting))
            self.num_bytes += sum(1 if part is None else len(part) for part in waiting)
            raise


def identity(found: os.stat_result) -> str:
    """Return what tells a file or a folder from all others, whatever its path."""
    return f"{found.st_dev}:{found.st_ino}"


def place_of(number: int) -> str:
    """Return what tells an open file from all others, an empty string where its descriptor is none."""
    try:
        return identity(_fstat(number))
    except OSError:
        return ""


def places_of(path: str, number: int) -> tuple[str, ...]:
    """Return an open file and the folders that it lies in; none where it has another name or is no plain file.

    `path`: without symbolic links; `number`: its descriptor.
    """
    try:
        found = _fstat(number)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or not os.path.samestat(found, _stat(path)):
            return ()
        return identity(found), *(identity(_stat(folder)) for folder in _folders(path))
    except OSError:
        return ()


def _folders(path: str) -> Iterator[str]:
    folder, above = os.path.dirname(path), path
    while folder != above:
        yield folder
        folder, above = os.path.dirname(folder), folder


def _is_held(place: str, num_ours: int) -> bool:
    """Return whether this process has the file open besides `num_ours` descriptors, or mapped, or that is unknown."""
    inode = place.rpartition(":")[2].encode()
    try:
        numbers = os.listdir(_OPEN_FILES)
        with open(_MAPPED, "rb") as file:
            mapped = any(line.split(None, 5)[4] == inode for line in file)
    except OSError:
        return True
    return mapped or sum(place_of(int(number)) == place for number in numbers) > num_ours


def _is_at(path: str, place: str) -> bool:
    try:
        return identity(_stat(path)) == place
    except OSError:
        return False
