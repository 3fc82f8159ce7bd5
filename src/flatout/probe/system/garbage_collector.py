"""What Python's garbage collector takes in a deep run, and which line of the user's asks for it."""

import gc
import sys
from collections.abc import Callable, Mapping
from threading import get_ident
from time import perf_counter_ns

from flatout.probe.core.probe import Probe
from flatout.probe.core.seams import Seams
from flatout.probe.core.user_places import user_stack
from flatout.probe.system.gc_calls import CollectCalls
from flatout.schema.run import CollectorFacts, Frame

__all__ = ["PROBE", "CollectorWatch"]

_ASKED = 0.9  # share of the time
_OLDEST = 2

_Asker = Frame | str | None
"""Who asked for a collection: a line of the user's, "library", or nobody."""


class CollectorWatch:
    """Clocks the collections in one thread between `start` and `stop`."""

    def __init__(self, inside: Callable[[], bool], between: Callable[[], bool] = lambda: False) -> None:
        """Clock nothing yet; `inside()` says whether a step is under way, `between()` whether an epoch has ended."""
        self._inside, self._between = inside, between
        self._calls = CollectCalls()
        self._thread = 0
        self._began = 0
        self._between_ns: dict[_Asker, int] = {}  # by who asked
        self._times_ns: list[int] = []
        self._full: dict[_Asker, list[int]] = {}  # full collections by who asked for them

    def install(self, seams: Seams) -> None:
        """Note who calls `gc.collect`."""
        self._calls.install(seams)

    def start(self) -> None:
        """Clock the collections of the calling thread from now on."""
        if self._called not in gc.callbacks:
            self._thread = self._calls.thread = get_ident()
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
        if not self._inside():
            asker = self._asker()
            self._between_ns[asker] = self._between_ns.get(asker, 0) + taken
            return
        self._times_ns.append(taken)
        if about["generation"] == _OLDEST:
            self._full.setdefault(self._asker(), []).append(taken)

    def _asker(self) -> _Asker:
        if not self._calls.asked:
            return None
        stack = user_stack(sys._getframe(2)) if self._calls.by_user else ()
        return Frame(*stack[0]) if stack else "library"

    def facts(self) -> CollectorFacts:
        """Return what was clocked."""
        whole = sum(self._times_ns)
        asked = {asker: times for asker, times in self._full.items() if asker is not None}
        place, called = None, 0
        if asked and sum(map(sum, asked.values())) >= _ASKED * whole:
            lines = [asker for asker in asked if isinstance(asker, Frame)]
            place = max(lines, key=lambda asker: sum(asked[asker]), default=None)
            called = sum(map(len, asked.values()))
        between = {asker: spent for asker, spent in self._between_ns.items() if isinstance(asker, Frame)}
        return CollectorFacts(
            collections=len(self._times_ns),
            full=sum(map(len, self._full.values())),
            seconds=whole / 1e9,
            longest_s=max(self._times_ns, default=0) / 1e9,
            place=place,
            called=called,
            between_s=sum(self._between_ns.values()) / 1e9,
            between_asked_s=sum(spent for asker, spent in self._between_ns.items() if asker is not None) / 1e9,
            between_at=max(between, key=between.__getitem__) if between else None,
        )


PROBE = Probe(
    name="garbage-collector",
    make=lambda deep: CollectorWatch(deep.in_step, deep.between_epochs),
    install=CollectorWatch.install,
    start=CollectorWatch.start,
    stop=CollectorWatch.stop,
    causes={"collector": CollectorWatch.facts},
)
