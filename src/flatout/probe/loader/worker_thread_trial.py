"""What several threads in each worker bring: batches made with the script's number and with one, in stretches in turn.

All workers of a machine read the same clock, so that all of them have one thread at the same time: threads that share
cores wait for each other, and one worker alone would tell nothing of that.
"""

import time
from collections.abc import Callable
from statistics import median

from torch import get_num_threads, set_num_threads  # before any probe has wrapped them

from flatout.schema.run import OneThread

__all__ = ["ThreadTrial"]

_STRETCH_S = 0.4
_LONGEST_S = 0.15  # of a batch: longer ones hardly ever lie in one stretch
_LEFT_ALONE = 3  # batches at first
_ENOUGH = 40  # batches of each kind


class ThreadTrial:
    """Gives the worker one thread in every other stretch of time, where the script gives it several."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Try nothing yet; `clock` says the same to all processes of the machine."""
        self._clock = clock
        self._first: list[float] = []
        self._arms: tuple[list[float], list[float]] = ([], [])
        self._cpu_s: list[float] = []  # of a batch made with one thread
        self.own = 0  # the script's number of threads
        self._single = False
        self._stretch = -1
        self._counts = False
        self._over = False

    def before(self) -> bool:
        """Set the threads for one batch; return whether it has another number than the script's."""
        if self._over:
            return False
        now = get_num_threads()
        if now != (1 if self._single else self.own):  # first of all, or the data set has set them itself
            self.own, self._single = now, False
        stretch = int(self._clock() / _STRETCH_S)
        single = stretch % 2 == 1 and self.own > 1 and len(self._first) >= _LEFT_ALONE
        if single is not self._single:
            set_num_threads(1 if single else self.own)
            self._single = single
        self._counts = stretch == self._stretch  # in the first, the others may still be at one of the other kind
        self._stretch = stretch
        return single

    def after(self, seconds: float, cpu_s: float) -> None:
        """Take the time of the batch that `before` was called for, and what its thread spent of that on a core."""
        if self._over or self.own <= 1:
            return
        if get_num_threads() != (1 if self._single else self.own):
            self._over = self._single  # set anew for each sample: there is nothing to try
            return
        if len(self._first) < _LEFT_ALONE:
            self._first.append(seconds)
            self._over = len(self._first) == _LEFT_ALONE and median(self._first) > _LONGEST_S
            return
        if self._counts and self._stretch == int(self._clock() / _STRETCH_S):
            if self._single:
                self._cpu_s.append(cpu_s)  # first: another thread asks for facts
            self._arms[self._single].append(seconds)
        if min(map(len, self._arms)) >= _ENOUGH:
            self.end()

    def end(self) -> None:
        """Put the script's number back."""
        if self._single and not self._over:
            set_num_threads(self.own)
        self._single, self._over = False, True

    def facts(self) -> OneThread:
        """Return what was tried so far."""
        several, single = self._arms
        n = min(len(several), len(single))
        if n == 0:
            return OneThread()
        return OneThread(n=n, several_s=median(several), single_s=median(single), cpu_s=median(self._cpu_s))
