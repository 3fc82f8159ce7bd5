"""Exchanges of ranks of one machine through memory that they share: a copy in, a meeting, a copy out.

Each rank has a place for what it brings, twice over: while a slow rank still reads what one exchange has left, others
write for the next. Ranks meet by counters, each written by one of them; on processors of this family writes are seen
in their order.
"""

import contextlib
import mmap
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch

from flatout.machine import is_running, usable_cores

__all__ = ["SharedExchange", "open_shared"]

_FOLDER = "/dev/shm"
_MOST_BYTES = 32 << 20  # of one rank's place
_LEAST_BYTES = 1 << 16
_LINE = 8  # counters of 8 bytes to a line of the processor's cache
_SPINS = 3000
_PAUSE_S = 2e-5  # between looks at a rank that is late
_LATER = 0.01  # of the time that it is late: between looks at one that is very late
_LONGEST_S = 2e-3
_LOOK_S = 0.2  # from one look whether the others are alive to the next


class SharedExchange:
    """One rank's view of the memory."""

    def __init__(self, file: int, rank: int, size: int, num_bytes: int) -> None:
        """Map the open `file`, in which each rank has two places of `num_bytes`."""
        self._rank, self._size, self._room = rank, size, num_bytes
        self._map = mmap.mmap(file, _length(size, num_bytes))
        self._counters = memoryview(self._map).cast("q")
        memory = torch.frombuffer(self._map, dtype=torch.uint8)[_counters_length(size) :]
        self._places = memory.view(2, size, num_bytes)
        self._meetings = self._turn = 0
        self._spins = _SPINS if size <= usable_cores() else 1
        self._counters[_LINE * rank + 1] = os.getpid()
        self.lost: Callable[[Exception], NoReturn] = _raise

    def gather(self, own: torch.Tensor, found: torch.Tensor) -> None:
        """Fill `found` with the bytes that every rank brings, rank by rank."""
        length = own.numel()
        rows = found.view(self._size, length)
        for start in range(0, length, self._room):
            part = own[start : start + self._room]
            places = self._next()
            places[self._rank, : part.numel()].copy_(part)
            self._meet()
            rows[:, start : start + part.numel()].copy_(places[:, : part.numel()])

    def total(self, flat: torch.Tensor) -> None:
        """Put the sum over all ranks in the place of a tensor; each rank adds a share of it."""
        room = self._room // flat.element_size()
        for start in range(0, flat.numel(), room):
            part = flat[start : start + room]
            places = self._next().view(flat.dtype)[:, : part.numel()]
            places[self._rank].copy_(part)
            self._meet()
            self._add(places)
            part.copy_(places[0])

    def mean(self, parts: Sequence[torch.Tensor]) -> None:
        """Put the mean over all ranks in the place of tensors of one type, each of one dimension and by itself."""
        for pieces in _fitting(parts, self._room // parts[0].element_size()):
            sizes = [piece.numel() for piece in pieces]
            places = self._next().view(parts[0].dtype)[:, : sum(sizes)]
            torch.cat(pieces, out=places[self._rank])
            self._meet()
            self._add(places)
            for piece, mean in zip(pieces, places[0].split(sizes), strict=True):
                torch.div(mean, self._size, out=piece)

    def _add(self, places: torch.Tensor) -> None:
        """Add what ranks have brought in the first of their places, each rank a share of it."""
        each = -(-places.shape[1] // self._size)
        shares = places[:, each * self._rank : each * (self._rank + 1)]
        for other in shares[1:]:
            shares[0] += other
        self._meet()

    def hand_on(self, flat: torch.Tensor) -> None:
        """Put the bytes that rank 0 has in the place of those that the others have."""
        for start in range(0, flat.numel(), self._room):
            part = flat[start : start + self._room]
            place = self._next()[0, : part.numel()]
            if self._rank == 0:
                place.copy_(part)
            self._meet()
            if self._rank:
                part.copy_(place)

    def _next(self) -> torch.Tensor:
        """Return the places of an exchange, which nobody reads any more."""
        self._turn += 1
        return self._places[self._turn % 2]

    def _meet(self) -> None:
        """Wait until every rank is here."""
        self._meetings += 1
        number, counters = self._meetings, self._counters
        counters[_LINE * self._rank] = number
        for place in range(0, _LINE * self._size, _LINE):
            for _ in range(self._spins):
                if counters[place] >= number:
                    break
            else:
                self._wait(place, number)

    def _wait(self, place: int, number: int) -> None:
        begin = now = time.monotonic()
        look = begin + _LOOK_S
        while self._counters[place] < number:
            time.sleep(min(_LONGEST_S, max(_PAUSE_S, _LATER * (now - begin))))
            now = time.monotonic()
            if now > look:
                look = now + _LOOK_S
                process = self._counters[place + 1]  # 0: not here yet
                if process and not is_running(process) and self._counters[place] < number:
                    self.lost(RuntimeError(f"rank {place // _LINE} has gone"))


def _fitting(parts: Sequence[torch.Tensor], room: int) -> Iterator[list[torch.Tensor]]:
    """Yield pieces of tensors, in order, as many as there is room for at a time."""
    pieces: list[torch.Tensor] = []
    left = room
    for part in parts:
        start, number = 0, part.numel()
        while start < number:
            piece = part[start : start + left] if start or number > left else part
            pieces.append(piece)
            start += piece.numel()
            left -= piece.numel()
            if not left:
                yield pieces
                pieces, left = [], room
    if pieces:
        yield pieces


def open_shared(store: Any, rank: int, size: int) -> SharedExchange | None:
    """Return the memory of all ranks, None where this machine, or its kind of processor, has none for them.

    `store`: through which rank 0 tells the others, and hears that they have opened it.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return None
    if rank == 0:
        name, room = _made(size)
        store.set("shared", f"{name}:{room}")
    else:
        name, _, told = store.get("shared").decode().rpartition(":")
        room = int(told)
    found = None
    if room:
        with contextlib.suppress(OSError), _opened(name) as file:
            found = SharedExchange(file, rank, size, room)
    store.set(f"shared/{rank}", "1" if found is not None else "0")
    everywhere = [store.get(f"shared/{other}") == b"1" for other in range(size)]
    if rank == 0 and room:
        os.unlink(name)
    return found if all(everywhere) else None


def _made(size: int) -> tuple[str, int]:
    """Make the file; return its name and the bytes of a place, 0 where there is no room."""
    name = f"{_FOLDER}/flatout-{os.getpid()}-{time.time_ns()}"
    try:
        free = os.statvfs(_FOLDER)
        room = min(_MOST_BYTES, free.f_bavail * free.f_frsize // (8 * size)) // 4096 * 4096
        if room < _LEAST_BYTES:
            return "", 0
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return "", 0
    try:
        os.posix_fallocate(file, 0, _length(size, room))
    except OSError:
        os.unlink(name)
        return "", 0
    finally:
        os.close(file)
    return name, room


@contextlib.contextmanager
def _opened(name: str) -> Iterator[int]:
    file = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _counters_length(size: int) -> int:
    return -(-size * _LINE * 8 // 4096) * 4096


def _length(size: int, room: int) -> int:
    return _counters_length(size) + 2 * size * room


def _raise(error: Exception) -> NoReturn:
    raise error
