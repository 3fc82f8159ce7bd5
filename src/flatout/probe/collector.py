"""What Python's garbage collector takes in a deep run, and whether one line of the user's asks for it."""

import gc
import linecache
import sys
from collections.abc import Callable, Mapping
from threading import get_ident
from time import perf_counter_ns

from flatout.probe.places import user_stack
from flatout.schema.run import CollectorFacts, Frame

__all__ = ["CollectorWatch"]

_ONE_PLACE = 0.9  # share of the time: collections that nobody asks for fall on whatever line allocates
_OLDEST = 2
_ENOUGH = 5  # full collections on one line that does not say that it asks for them
_ASKS = "collect("


class CollectorWatch:
    """Clocks the collections in one thread between `start` and `stop`."""

    def __init__(self, inside: Callable[[], bool]) -> None:
        """Clock nothing yet; `inside()` says whether a step is under way: what falls between steps is not counted."""
        self._inside = inside
        self._thread = 0
        self._began = 0
        self._times_ns: list[int] = []
        self._full: dict[Frame | None, list[int]] = {}

    def start(self) -> None:
        """Clock the collections of the calling thread from now on."""
        if self._called not in gc.callbacks:
            self._thread = get_ident()
            gc.callbacks.append(self._called)

    def stop(self) -> None:
        """Leave the collector as it was."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, event: str, about: Mapping[str, int]) -> None:
        if get_ident() != self._thread or not self._inside():
            return
        if event == "start":
            self._began = perf_counter_ns()
            return
        if not self._began:
            return
        taken = perf_counter_ns() - self._began
        self._times_ns.append(taken)
        if about["generation"] == _OLDEST:
            stack = user_stack(sys._getframe(1))
            self._full.setdefault(Frame(*stack[0]) if stack else None, []).append(taken)

    def facts(self) -> CollectorFacts:
        """Return what was clocked."""
        whole = sum(self._times_ns)
        place, called = None, 0
        for where, times in self._full.items():
            asks = where is not None and (len(times) >= _ENOUGH or _ASKS in linecache.getline(where.file, where.line))
            if asks and sum(times) >= _ONE_PLACE * whole:
                place, called = where, len(times)
        return CollectorFacts(
            collections=len(self._times_ns),
            full=sum(map(len, self._full.values())),
            seconds=whole / 1e9,
            longest_s=max(self._times_ns, default=0) / 1e9,
            place=place,
            called=called,
        )
