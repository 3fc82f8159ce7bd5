"""Samples that wait for a disk or a network, several asked for at once: for a proof, before anything else is known."""

import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

__all__ = ["WAITS_S", "ConcurrentRequests", "waits"]

_SHARE = 0.4  # of a sample's time on the processor, below which it waits

WAITS_S = 0.5e-3
"""A sample that takes less is not worth a thread's 40 us."""


def waits(took_s: float, computed_s: float) -> bool:
    """Return whether making a sample, which took so long on the wall and on all processors, is mostly waiting."""
    return took_s >= WAITS_S and computed_s <= _SHARE * took_s


class ConcurrentRequests:
    """Threads, each of which asks a copy of a data set for a sample, again and again, as a context.

    A handler of a signal that raises, a time limit for instance, is not kept waiting for a sample that never comes.
    """

    def __init__(self, copies: Sequence[Any], indices: Sequence[int]) -> None:
        """Take a copy of the data set and the index of a sample for each thread."""
        self.copies = copies
        self._made: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._asked: list[queue.SimpleQueue[bool]] = [queue.SimpleQueue() for _ in copies]
        self._threads = [
            threading.Thread(target=_ask_for, args=(self._made, place, *each), daemon=True)
            for place, each in enumerate(zip(self._asked, copies, indices, strict=True))
        ]

    def __enter__(self) -> "ConcurrentRequests":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for asked in self._asked:
            asked.put(False)
        for thread in () if kind else self._threads:
            thread.join()

    def once(self) -> list[tuple[Any, float]]:
        """Return samples and the seconds that each took, in order; none at all where one of them raised."""
        for asked in self._asked:
            asked.put(True)
        found = dict(self._made.get() for _ in self._threads)
        return [] if None in found.values() else [found[place] for place in range(len(found))]


def _ask_for(
    made: "queue.SimpleQueue[tuple[int, Any]]", place: int, asked: "queue.SimpleQueue[bool]", copy_: Any, index: int
) -> None:
    while asked.get():
        start, found = time.perf_counter(), None
        with contextlib.suppress(BaseException):  # whatever it is, it is asked for again
            found = (copy_[index], time.perf_counter() - start)
        made.put((place, found))
