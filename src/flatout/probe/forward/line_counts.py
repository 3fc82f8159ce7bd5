"""How often each line of the user's code runs in one step, of the deep run, and what it takes while it is traced.

The training thread is traced for one step, lines of the user's own files alone. It is not where somebody else traces it
(a debugger, a measure of coverage) or where code is compiled, and tracing ends early where a step runs very many lines.
"""

import os
import sys
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.user_places import is_user_file
from flatout.schema.run import Frame, RepeatedLine

__all__ = ["PROBE", "LineCountWatch"]

_AT_STEP = 10  # a step in which no other probe does anything dear
_LEAST = 2  # runs in a step
_MOST_LINES = 400  # that are told
_MOST_RUNS = 300_000  # of lines, after which tracing ends


class LineCountWatch:
    """Traces one step."""

    def __init__(self, event_log: EventLog) -> None:
        """Count nothing yet."""
        self._event_log = event_log
        self.trouble: Callable[[Exception], None] = lambda error: event_log.tracker.trouble(error)
        self._counts: dict[tuple[CodeType, int], int] = {}
        self._taken: dict[tuple[CodeType, int], int] = {}
        self._at: tuple[CodeType, int] | None = None  # the line that runs
        self._since = 0
        self._runs = 0
        self._over = self._under_way = False
        self._traced: list[FrameType] = []  # frames that were under way when tracing began

    @guarded
    def step(self, step: Any, number: int) -> None:
        """Take one finished step."""
        if number == _AT_STEP:
            self._begin()
        elif number > _AT_STEP:
            self.stop()

    def _begin(self) -> None:
        log = self._event_log
        if sys.gettrace() is not None or log.tracing.possible or get_ident() != log.thread:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace is None and is_user_file(frame.f_code.co_filename):
                frame.f_trace = self._line
                self._traced.append(frame)
            frame = frame.f_back
        self._under_way = True
        sys.settrace(self._enter)

    def stop(self) -> None:
        """Trace no longer."""
        self._under_way = False
        if sys.gettrace() == self._enter:
            sys.settrace(None)
        while self._traced:
            self._traced.pop().f_trace = None

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if is_user_file(frame.f_code.co_filename) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self._under_way:  # a function that goes on, and is traced by somebody else now
            return None
        if event == "line":
            key = (frame.f_code, frame.f_lineno)
            if self._at is not None:
                self._taken[self._at] = self._taken.get(self._at, 0) + perf_counter_ns() - self._since
            self._counts[key] = self._counts.get(key, 0) + 1
            self._runs += 1
            if self._runs > _MOST_RUNS:
                self._over, self._under_way = True, False
                sys.settrace(None)
            self._at, self._since = key, perf_counter_ns()
        return self._line

    def facts(self) -> tuple[RepeatedLine, ...]:
        """Return the lines that ran often in the step, the most frequent first; none where it had too many."""
        if self._over:
            return ()
        often = [(count, code, line) for (code, line), count in self._counts.items() if count >= _LEAST]
        often.sort(key=lambda each: -each[0])
        return tuple(
            RepeatedLine(
                place=Frame(os.path.abspath(code.co_filename), line, code.co_qualname),
                count=count,
                seconds=self._taken.get((code, line), 0) / 1e9,
            )
            for count, code, line in often[:_MOST_LINES]
        )


PROBE = Probe(
    name="line-counts",
    make=lambda deep: LineCountWatch(deep.event_log),
    step=LineCountWatch.step,
    stop=LineCountWatch.stop,
    causes={"repeated_lines": LineCountWatch.facts},
)
