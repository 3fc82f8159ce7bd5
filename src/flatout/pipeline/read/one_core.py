"""Threads that are kept on one core while they take turns with the interpreter's lock.

Between two cores each handing over of the lock wakes a core that had gone to rest, and more so in a virtual machine. A
whole first pass over 4,096 samples of 5 ms of waiting on two cores of an AMD EPYC under KVM, 250 in flight, in turns:
16,700 to 18,100 samples/s where threads go where they like, 21,200 to 22,400 where they stay on one; after the first
batch 28,900 to 31,700 and 45,300 to 51,300 (n=3 each, 2026-11-26).

What samples compute beside the lock could be done on several cores. How much that is, shows when they come out of no
rest: threads that computed more than a little stay no longer.
"""

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["OneCore", "programs", "usable"]

T = TypeVar("T")

MOST_S = 40e-6
"""What a sample may compute. One that only sleeps took 8, 17 and 21 us (medians of n=2,249 each, the same machine)."""

_LOOKED_AT = 64  # samples, none of them a thread's first: that may open a connection
_MOST_LISTS = 8  # of threads that begin and end meanwhile
_TASKS = Path("/proc/self/task")

_turns = itertools.count()
_kept: set[int] = set()  # the system's numbers of all threads that are kept anywhere


def usable() -> bool:
    """Return whether threads can be kept on one of several cores here, and have one lock to hand over."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or not hasattr(os, "sched_setaffinity"):
        return False
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores)
    except OSError:  # not allowed
        return False
    return len(cores) > 1 and _TASKS.is_dir()


def programs() -> frozenset[str] | None:
    """Return the numbers of the programs that this process has started and that run; None where that is not told.

    One that a sample starts and leaves would stay on the core for good, and what it computes is seen by nobody.
    """
    try:
        return frozenset(
            number for task in _TASKS.iterdir() for number in (task / "children").read_text(encoding="ascii").split()
        )
    except OSError:
        return None


class OneCore:
    """A core for threads that hand the interpreter's lock to each other: another one for each process and each pass."""

    def __init__(self) -> None:
        """Choose a core of those that the calling thread may use; nothing is kept on it yet."""
        self._all = os.sched_getaffinity(0)
        cores = sorted(self._all)
        self._core = {cores[(os.getpid() + next(_turns)) % len(cores)]}
        self._before = _threads()
        self._own: set[int] = set()
        self._lock = threading.Lock()
        self._ended = self._open = False
        self._taken: list[float] = []  # seconds of the processor, of samples

    def run(self, one: Callable[[int], T], index: int, *, first: bool) -> T:
        """Return the sample that `one` makes; where they compute too much, threads go where they like from then on.

        `first`: it is the first sample of this thread.
        """
        if first or self._open or len(self._taken) >= _LOOKED_AT:
            return one(index)
        start = time.thread_time()
        made = one(index)
        self._taken.append(time.thread_time() - start)
        if len(self._taken) >= _LOOKED_AT and sorted(self._taken)[_LOOKED_AT // 2] > MOST_S:  # perhaps in two threads
            self.open()
        return made

    def keep(self) -> None:
        """Keep the calling thread on the core until `leave`; one that a kept thread has started is there already."""
        number = threading.get_native_id()
        with self._lock:
            with contextlib.suppress(OSError):  # the core was taken away
                if not self._open:
                    os.sched_setaffinity(0, self._core)
                elif os.sched_getaffinity(0) == self._core:
                    os.sched_setaffinity(0, self._all)
            self._own.add(number)
            _kept.add(number)

    def leave(self) -> None:
        """Tell that the calling thread ends; the last one lets go what they have started, once `end` was called."""
        number = threading.get_native_id()
        with self._lock:
            self._own.discard(number)
            _kept.discard(number)
            last = self._ended and not self._own
        if last:
            self._let_go(_threads() - self._before - _kept)

    def open(self) -> None:
        """Let all threads, and what they have started, use all cores from now on."""
        with self._lock:
            self._open = True
            own = set(self._own)
        self._let_go(own | (_threads() - self._before - _kept))

    def end(self) -> None:
        """Tell that no more samples are asked for: what threads have started may use all cores again."""
        self._ended = True
        self._let_go(_threads() - self._before - _kept)

    def _let_go(self, threads: set[int]) -> None:
        for thread in threads:
            with contextlib.suppress(OSError):  # has ended by now
                if os.sched_getaffinity(thread) == self._core:
                    os.sched_setaffinity(thread, self._all)


def _threads() -> set[int]:
    """Return the system's numbers of this process's threads, of Python and of libraries.

    The system leaves some out of a list that it writes while others end, so it is asked until it says the same twice.
    """
    found: set[int] = set()
    before: set[int] | None = None
    with contextlib.suppress(OSError):
        for _ in range(_MOST_LISTS):
            now = {int(each.name) for each in _TASKS.iterdir()}
            found |= now
            if now == before:
                break
            before = now
    return found
