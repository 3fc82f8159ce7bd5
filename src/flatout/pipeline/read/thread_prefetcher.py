"""Samples that wait for a disk or a network, asked for by many threads before their batch is due.

Each thread asks a copy of the data set, so that what one of them opens at its first access is its own.
"""

import statistics
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from flatout.machine import usable_cores
from flatout.pipeline.inspect.concurrent_requests import WAITS_S, waits
from flatout.pipeline.inspect.determinism import some_indices
from flatout.pipeline.read.one_core import OneCore, usable
from flatout.pipeline.read.sample_queue import Reader, SampleQueue
from flatout.watch.script_signals import any_but_signals

__all__ = ["Reader", "ThreadPrefetcher", "in_flight", "num_reading", "reads_quickly", "scales", "suit_one_core"]

_FEWEST, _MOST = 64, 256
"""In flight at a time."""

_HANDLED_S, _ON_ONE_CORE_S, _COLD = 28e-6, 20e-6, 0.05
"""What a sample that does nothing but wait takes of the interpreter when many are asked for, by threads that go where
they like and by those that stay on one core; and the share of its time that it may take of the processor when one is
asked for, out of a rest: 90 to 200 us.

Of samples of 5 ms, on one core of an AMD EPYC, 64 in flight give 9,900 to 10,000 a second over a whole first pass of
4,096, 96 12,900 to 13,200, 128 13,500 to 16,100, 192 16,700 to 17,900, 256 14,200 to 17,900 (n=3 each, 2026-11-23). On
two cores threads hand the interpreter's lock to and fro between them: 64 8,100 to 9,200, 96 8,100 to 9,600, 128 8,600
to 9,100, 192 9,300 to 10,900, 256 8,700 to 9,600 (n=4 each). On two cores of a faster one, since threads start each
other, whole first passes in turns: 127 14,900 to 16,500, 182 16,800 to 18,300, 255 15,500 to 17,100 (n=6 each,
2026-11-25). Kept on one of two: 125 16,600 to 16,800, 179 19,800 to 20,200, 250 21,200 to 22,400 (n=3 each,
2026-11-26).
"""

_MOST_COLD_S = 250e-6  # of the processor, for one sample out of a rest

_SCALED_ON, _NEARLY = 6, 0.6  # 1.2 times as fast on two: decoding JPEG is 1.5 times (1.2 to 1.7, n=8)
_READ, _HANDED_OVER_S = 15, 30e-6  # two workers deliver 30,000 small samples a second at most (LOADING)


def in_flight(times: Sequence[tuple[float, float]], one_core: bool = False) -> int:
    """Return how many samples are asked for at a time, 0 where making one is not mostly waiting.

    `times`: of some samples, the seconds that making one took, on the wall and on the processors, all threads of this
    process and what it started together: one that waits for the interpreter's lock waits for no disk. With as many in
    flight as one core can handle while one of them waits, more would wait for that core. `one_core`: they stay there.
    """
    if not times or not all(waits(took, cpu) for took, cpu in times):
        return 0
    handled_s = _ON_ONE_CORE_S if one_core else _HANDLED_S
    waited_s, busy_s = min(took for took, _ in times), min(cpu for _, cpu in times)
    return max(_FEWEST, min(_MOST, round(waited_s / (handled_s + max(0.0, busy_s - _COLD * waited_s)))))


def suit_one_core(times: Sequence[tuple[float, float]]) -> bool:
    """Return whether samples that took such `times` may compute so little that one core does it for many at a time.

    Whether they do shows when many are asked for (`OneCore.run`).
    """
    return bool(times) and statistics.median(cpu for _, cpu in times) <= _MOST_COLD_S and usable()


def scales(reader: Reader, length: int, num_threads: int) -> bool:
    """Return whether reading samples on `num_threads` threads is clearly faster than on one.

    Half of some are read alone, the others together, and then the other way round.
    """
    some = some_indices(length, _SCALED_ON * num_threads)
    one, prefetch = reader(), ThreadPrefetcher(reader, num_threads)
    alone_s = together_s = 0.0
    try:
        prefetch.take(some[:num_threads])  # what threads open at first
        one(some[0])
        for alone, together in ((some[::2], some[1::2]), (some[1::2], some[::2])):
            start = time.perf_counter()
            for index in alone:
                one(index)
            middle = time.perf_counter()
            prefetch.take(together)
            alone_s, together_s = alone_s + middle - start, together_s + time.perf_counter() - middle
    finally:
        prefetch.end()
    return together_s * num_threads * _NEARLY < alone_s and alone_s > WAITS_S * len(some) / 2


def reads_quickly(reader: Reader, length: int) -> bool:
    """Return whether a value is read in less time than a worker takes to hand a sample over."""
    some = some_indices(length, _READ)
    taken = []
    try:
        one = reader()
        one(some[0])
        for index in some:
            start = time.perf_counter()
            one(index)
            taken.append(time.perf_counter() - start)
    except any_but_signals():  # the script's own call will say it
        return False
    return sorted(taken)[len(taken) // 2] < _HANDED_OVER_S


def num_reading(reader: Reader, length: int) -> int:
    """Return on how many threads samples are read, 0 for none: as many as there are cores where that pays."""
    cores = usable_cores()
    try:
        return cores if cores > 1 and scales(reader, length, cores) else 0
    except any_but_signals():  # the script's own call will say it
        return 0


class ThreadPrefetcher:
    """The samples of one pass over a data set, asked for ahead of their batches.

    `reader()` is called in each thread, for a function of its own that reads one sample. Not a pool of the standard
    library: with its futures a sample that only waits takes 45 to 56 us of the processor, so 17 to 23 (64 and 128 in
    flight, one core, n=2 each); a first pass of 4,096 on two cores, 5,100 to 6,700 samples a second, 6,500 to 8,400
    (n=5 each, in turns). Woken once a batch, and with fewer calls of torch, 24,300 after the first batch in place of
    22,100, 24,800 of 24,100 beside a busy core (medians of n=6 in turns, an AMD EPYC of another kind, 2026-11-24).
    """

    def __init__(
        self, reader: Reader, num_threads: int = _FEWEST, computing_on: int = 1, one_core: bool = False
    ) -> None:
        """Ask for up to `num_threads` samples at a time; threads start as they are needed.

        `computing_on`: how many threads torch computes a sample on; `one_core`: they all stay on the same core.
        """
        self._num_threads = num_threads
        self._desk = SampleQueue(reader, computing_on, OneCore() if one_core else None)
        self._asked: set[int] = set()
        weakref.finalize(self, self._desk.end).atexit = False

    def follow(self, batches: Iterator[torch.Tensor], prefetch: bool, *, wanted: Any) -> Iterator[torch.Tensor]:
        """Yield the indices of `batches`; the threads end with them.

        `early`: samples of later batches are asked for by then, of which `wanted(indices)` says which.
        """
        return _Following(self, batches, wanted if prefetch else None, 2 * self._num_threads)

    def take(self, indices: Sequence[int]) -> list[Any]:
        """Return samples in the order of `indices`; raise what the data set raised."""
        self.ask(indices)
        self._asked.difference_update(indices)
        made = self._desk.wait(indices)
        return [made[index] for index in indices]

    def end(self) -> None:
        """Ask for no more; threads end with the sample that they are at."""
        self._desk.end()
        self._asked.clear()

    def ask(self, indices: Sequence[int]) -> None:
        """Let threads ask for samples that were not asked for yet."""
        desk = self._desk
        if desk.ended:
            raise RuntimeError("samples were asked for after the end of their pass")
        for index in indices:
            if index not in self._asked:
                self._asked.add(index)
                desk.todo.put(index)
        desk.wanted = max(desk.wanted, min(self._num_threads, len(self._asked)))
        desk.grow()


class _Following:
    """The indices of batches whose samples are asked for meanwhile.

    No generator: what a handler of a signal raises would end it, and the script may go on.
    """

    def __init__(self, prefetch: ThreadPrefetcher, batches: Iterator[torch.Tensor], wanted: Any, most: int) -> None:
        self._prefetch, self._batches, self._wanted, self._most = prefetch, batches, wanted, most
        self._ahead: deque[torch.Tensor] = deque()

    def __iter__(self) -> "_Following":
        return self

    def __next__(self) -> torch.Tensor:
        try:
            while self._wanted is not None and sum(map(len, self._ahead)) < self._most:
                self._ahead.append(next(self._batches))
                self._prefetch.ask(self._wanted(self._ahead[-1]).tolist())
        except StopIteration:
            self._wanted = None
        if self._ahead:
            return self._ahead.popleft()
        try:
            return next(self._batches)
        except StopIteration:
            self._prefetch.end()
            raise
