"""What Python's garbage collector takes in a deep run, and whether one line of the user's asks for it.

Who calls `gc.collect` asks. The collections that nobody asks for fall on whatever line makes the objects, often the
same one each time; from Python 3.12 on they begin a little later than where the threshold was passed.
"""

import gc
import linecache
import sys
from collections.abc import Callable, Mapping
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from flatout.probe.places import user_stack
from flatout.probe.seams import Hits, Seams
from flatout.schema.run import CollectorFacts, Frame

__all__ = ["CollectorWatch"]

_ONE_PLACE = 0.9  # share of the time
_OLDEST = 2
_ASKS = "collect("  # for who took `gc.collect` by another name before it was watched


class CollectorWatch:
    """Clocks the collections in one thread between `start` and `stop`."""

    def __init__(self, inside: Callable[[], bool], between: Callable[[], bool] = lambda: False) -> None:
        """Clock nothing yet; `inside()` says whether a step is under way, `between()` whether an epoch has ended."""
        self._inside, self._between = inside, between
        self._thread = 0
        self._began = 0
        self._asked = False
        self._between_ns = self._between_asked_ns = 0
        self._times_ns: list[int] = []
        self._full: dict[Frame | None, list[int]] = {}  # where full collections were asked for; None: nowhere

    def install(self, seams: Seams) -> None:
        """Note calls of `gc.collect`."""

        def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
            def collect(*args: Any, **kwargs: Any) -> Any:
                hits.count += 1
                self._asked = get_ident() == self._thread
                try:
                    return original(*args, **kwargs)
                finally:
                    self._asked = False

            return collect

        seams.wrap("gc:collect", make)

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
        if get_ident() != self._thread or not (self._inside() or self._between()):
            return
        if event == "start":
            self._began = perf_counter_ns()
            return
        if not self._began:
            return
        taken = perf_counter_ns() - self._began
        stack = user_stack(sys._getframe(1))
        place = Frame(*stack[0]) if stack else None
        asked = self._asked or (place is not None and _ASKS in linecache.getline(place.file, place.line))
        if not self._inside():
            self._between_ns += taken
            self._between_asked_ns += taken * asked
            return
        self._times_ns.append(taken)
        if about["generation"] == _OLDEST:
            self._full.setdefault(place if asked else None, []).append(taken)

    def facts(self) -> CollectorFacts:
        """Return what was clocked."""
        whole = sum(self._times_ns)
        place, called = None, 0
        for where, times in self._full.items():
            if where is not None and sum(times) >= _ONE_PLACE * whole:
                place, called = where, len(times)
        return CollectorFacts(
            collections=len(self._times_ns),
            full=sum(map(len, self._full.values())),
            seconds=whole / 1e9,
            longest_s=max(self._times_ns, default=0) / 1e9,
            place=place,
            called=called,
            between_s=self._between_ns / 1e9,
            between_asked_s=self._between_asked_ns / 1e9,
        )
