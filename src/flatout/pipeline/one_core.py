"""Threads that are kept on one core while they take turns with the interpreter's lock.

Between two cores each handing over of the lock wakes a core that had gone to rest, and more so in a virtual machine. A
whole first pass over 4,096 samples of 5 ms of waiting on two cores of an AMD EPYC under KVM, 250 in flight, in turns:
16,700 to 18,100 samples/s where threads go where they like, 21,200 to 22,400 where they stay on one; after the first
batch 28,900 to 31,700 and 45,300 to 51,300 (n=3 each, 2026-11-26).
"""

import contextlib
import itertools
import os
import sys
import threading
from pathlib import Path

__all__ = ["OneCore", "usable"]

_TASKS = Path("/proc/self/task")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")

_turns = itertools.count()


def usable() -> bool:
    """Return whether threads can be kept on one of several cores here, and have one lock to hand over."""
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    return bool(locked) and hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1


class OneCore:
    """A core for threads that hand the interpreter's lock to each other: another one for each rank and each pass."""

    def __init__(self) -> None:
        """Choose a core of those that the calling thread may use; nothing is kept on it yet.

        Raises:
            OSError: the system does not tell.
        """
        self._all = os.sched_getaffinity(0)
        cores = sorted(self._all, reverse=True)
        self._core = {cores[(_local_rank() + next(_turns)) % len(cores)]}
        self._before, self._kept = _threads(), set[int]()

    def keep(self) -> None:
        """Keep the calling thread on the core until it ends."""
        with contextlib.suppress(OSError):  # then it goes where it likes, as before
            os.sched_setaffinity(0, self._core)
            self._kept.add(threading.get_native_id())

    def let_go(self) -> None:
        """Let threads that these have started, and which the system keeps there too, use all cores again."""
        for thread in _threads() - self._before - self._kept:
            with contextlib.suppress(OSError):  # has ended by now
                if os.sched_getaffinity(thread) == self._core:
                    os.sched_setaffinity(thread, self._all)


def _threads() -> set[int]:
    """Return the system's numbers of this process's threads, of Python and of libraries."""
    with contextlib.suppress(OSError):
        return {int(each.name) for each in _TASKS.iterdir()}
    return set()


def _local_rank() -> int:
    for name in _LOCAL_RANK:
        with contextlib.suppress(ValueError):
            return int(os.environ.get(name, ""))
    return 0
