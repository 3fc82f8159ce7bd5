"""On how many threads torch computes a batch: one, or the process's own number where that is measured to be faster.

Two threads gather 64 rows of 3 KB out of 180 MB in 0.6 times the time of one (29 and 50 us, two idle cores of an AMD
EPYC, torch 2.13, n=5 passes of 938 batches). Where another process keeps a core busy, a parallel region waits for it,
and takes 3 times as long and more. Compiled code that is left one thread of torch begins others by itself. So both are
tried now and then, with batches that are made anyway.
"""

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, TypeVar

import torch

__all__ = ["IntraOpThreads"]

_TRIED = 16  # batches of a trial, first with one thread, then with all
_SETTLED = 3  # first ones of each half that do not count: threads that wait for work keep a core for a while
_CLEARLY = 0.93  # of the time of one thread: below, all are taken
_WATCHED, _SLOW = 16, 2  # batches with all threads, whose time is then looked at; so often in a row must it be too much
_EVERY, _LONGEST = 128, 4096  # batches until the next trial: more after each that all threads did not win

T = TypeVar("T")


class IntraOpThreads:
    """Computes batches, on one thread or on as many as torch may use; what comes out must not depend on the number."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin with one thread."""
        self._clock = clock
        self._all = False
        self._every, self._left = _EVERY, _TRIED // 2  # the first batches fill memory
        self._alone: list[float] = []  # seconds, of the trial under way
        self._together: list[float] = []
        self._one_s = 0.0  # what a batch took on one thread in the last trial
        self._watched: list[float] = []
        self._slow = 0  # times in a row

    def run(self, make: Callable[..., T], *given: Any) -> T:
        """Return what `make` gives of what it is `given`."""
        threads = torch.get_num_threads()
        if threads == 1:
            return make(*given)
        make = partial(make, *given)
        if not self._left:
            return self._tried(make, threads)
        self._left -= 1
        return self._noted(make, self._watched) if self._all else _on_one(make, threads)

    def _noted(self, make: Callable[[], T], taken: list[float]) -> T:
        start = self._clock()
        made = make()
        taken.append(self._clock() - start)
        if len(self._watched) == _WATCHED:  # one that waits for a busy core takes as long as many others: their sum
            self._slow = self._slow + 1 if sum(self._watched) > self._one_s * _WATCHED else 0
            self._watched.clear()
            if self._slow == _SLOW:
                self._decide(False)
        return made

    def _tried(self, make: Callable[[], T], threads: int) -> T:
        if len(self._alone) < _TRIED // 2:
            return self._noted(lambda: _on_one(make, threads), self._alone)
        made = self._noted(make, self._together)
        if len(self._together) == _TRIED // 2:
            self._one_s = median(self._alone[_SETTLED:])
            self._decide(median(self._together[_SETTLED:]) < _CLEARLY * self._one_s)
            self._alone.clear()
            self._together.clear()
        return made

    def _decide(self, together: bool) -> None:
        self._all, self._slow = together, 0
        self._left = _LONGEST if together else self._every
        self._every = min(2 * self._every, _LONGEST)


def _on_one(make: Callable[[], T], threads: int) -> T:
    try:
        torch.set_num_threads(1)
        return make()
    finally:
        torch.set_num_threads(threads)
