"""The two clocks: `perf_counter_ns` on the host, CUDA events on the device, read later and never waited for."""

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

__all__ = ["DeviceClock", "now"]

now = perf_counter_ns
"""Nanoseconds of the host's monotonic clock."""


class DeviceClock:
    """Device time of forward, backward and optimizer by events on the current stream.

    An event is recorded when the host *submits* the boundary of a phase; its time is read once the device has passed
    it (`query()`), some steps later. Nothing here synchronizes. At most `limit` steps wait to be read; older ones are
    given up, so that a device far behind costs memory of bounded size.
    """

    def __init__(self, make_event: Callable[[], Any], deliver: Callable[[int, tuple[int, ...]], None]) -> None:
        """Take a maker of timing events and where finished steps go: `deliver(step number, nanoseconds)`."""
        self._make_event = make_event
        self._deliver = deliver
        self._free: list[Any] = []
        self._open: list[tuple[int, Any, Any]] = []
        self._begun: list[tuple[int, Any]] = []
        self._waiting: deque[tuple[int, list[tuple[int, Any, Any]]]] = deque()
        self.limit = 64

    def begin(self, phase: int) -> None:
        """Mark the submission of the first work of `phase` (0 forward, 1 backward, 2 optimizer)."""
        self._begun.append((phase, self._event()))

    def finish(self) -> None:
        """Mark the submission of the last work of the phase that was begun last."""
        if self._begun:
            phase, start = self._begun.pop()
            self._open.append((phase, start, self._event()))

    def step_done(self, number: int) -> None:
        """Close the step `number` and read what the device has finished meanwhile."""
        self._waiting.append((number, self._open))
        self._open = []
        while self._waiting and all(end.query() for _, _, end in self._waiting[0][1]):
            self._read(*self._waiting.popleft())
        if len(self._waiting) > self.limit:
            self._waiting.popleft()

    def _read(self, number: int, marks: list[tuple[int, Any, Any]]) -> None:
        totals = [0, 0, 0]
        for phase, start, end in marks:
            totals[phase] += round(start.elapsed_time(end) * 1e6)
            self._free += (start, end)
        self._deliver(number, tuple(totals))

    def _event(self) -> Any:
        event = self._free.pop() if self._free else self._make_event()
        event.record()
        return event
