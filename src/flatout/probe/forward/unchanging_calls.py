"""Calls of the user's functions that are given the same and return the same numbers in every step, in plain Python too.

In one step of the deep run the functions are clocked; those that take a part of it that matters are compared in three
later steps, by what they are given (numbers, names, tensors that were not written to) and by the contents of what they
return. A function that returns few numbers, or what it keeps, is none. The calls of one of these steps are compared
with each other, too. Nothing is looked at where somebody else profiles the thread, or where functions are compiled.
"""

import contextlib
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.user_places import is_user_file, user_stack
from flatout.probe.forward.call_contents import CallContents, given_to, of_object
from flatout.probe.forward.calls_again import CallsAgain
from flatout.schema.run import Frame, RepeatedCall, Step, UnchangingCall

__all__ = ["PROBE", "CallWatch"]

_CLOCKED_AT, _COMPARED_AT = 5, (7, 8, 10)
_SHARE = 0.03  # of the step that was clocked
_MOST_FUNCTIONS = 40
_MOST_EVENTS = 500_000  # of a step
_LEAST_NUMBERS = 16
_MOST_KEYS = 256
_GENERATOR = 0x20 | 0x80 | 0x100 | 0x200  # flags of code: generators and coroutines return many times

_Place = tuple[str, int, str]
_Spot = tuple[CodeType, _Place]
_Event = Callable[[FrameType, str, Any], None]


class CallWatch:
    """Clocks the functions of one step, and compares them in three."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self.trouble: Callable[[Exception], None] = lambda error: event_log.tracker.trouble(error)
        self._steps = 0
        self._clock = _Clock(event_log)
        self._compared: _Compared | None = None
        self._profile: _Event | None = None

    @guarded
    def step(self, step: Step, *_: object) -> None:
        """Take one finished step."""
        self._steps += 1
        self.stop()
        if self._steps == _CLOCKED_AT:
            self._begin(self._clock.event)
        elif self._steps == _CLOCKED_AT + 1:
            slow = self._clock.slow(_SHARE * step.wall_ns)
            self._compared = _Compared(self._event_log, slow) if slow else None
        elif self._compared is not None and self._steps in _COMPARED_AT:
            self._compared.begin()
            self._begin(self._compared.event)

    def _begin(self, event: _Event) -> None:
        log = self._event_log
        if sys.getprofile() is None and not log.tracing.possible and get_ident() == log.thread:
            self._profile = event
            sys.setprofile(event)

    def stop(self) -> None:
        """Look at nothing more."""
        if self._profile is not None and sys.getprofile() == self._profile:
            sys.setprofile(None)
        self._profile = None
        if self._compared is not None:
            self._compared.again.end()

    def facts(self) -> tuple[UnchangingCall, ...]:
        """Return the calls that were the same in every step that was compared."""
        return self._compared.facts() if self._compared is not None else ()

    def repeated(self) -> tuple[RepeatedCall, ...]:
        """Return the functions that one step calls again for what it has."""
        return self._compared.again.facts() if self._compared is not None else ()


class _Clock:
    """What the functions of one step take, with all that they call."""

    def __init__(self, event_log: EventLog) -> None:
        self._event_log = event_log
        self._known: dict[CodeType, bool] = {}
        self._open: list[tuple[FrameType, int]] = []
        self._taken: dict[CodeType, int] = {}
        self._events = 0

    def event(self, frame: FrameType, event: str, _: Any) -> None:
        """Take a call or a return."""
        self._events += 1
        if self._events > _MOST_EVENTS:
            sys.setprofile(None)
            self._taken.clear()
            self._open.clear()
        elif event == "call":
            code = frame.f_code
            if self._known.get(code) is None:
                self._known[code] = is_user_file(code.co_filename) and not code.co_flags & _GENERATOR
            if self._known[code] and not self._event_log.fetching:
                self._open.append((frame, perf_counter_ns()))
        elif event == "return" and self._open and self._open[-1][0] is frame:
            _, began = self._open.pop()
            self._taken[frame.f_code] = self._taken.get(frame.f_code, 0) + perf_counter_ns() - began

    def slow(self, least_ns: float) -> frozenset[CodeType]:
        """Return the functions that took so long, the slowest where there are many."""
        self._open.clear()
        slow = [code for code, taken in self._taken.items() if taken >= least_ns]
        slow.sort(key=lambda code: -self._taken[code])
        return frozenset(slow[:_MOST_FUNCTIONS])


@dataclass(slots=True)
class _Returned:
    """What a call returned in the first step, and the tensors that it was given."""

    digest: object
    values: list[Any]  # arrays and tensors, held so that no others take their places in memory
    given: list[weakref.ref[Any]]


@dataclass(slots=True)
class _CallSite:
    """The calls of one function from one line."""

    calls: int = 0  # in the first step
    numbers: int = 0
    passes: set[int] = field(default_factory=set)
    changed: bool = False
    returned: dict[object, _Returned] = field(default_factory=dict)


class _Compared:
    """The calls of some functions in several steps."""

    def __init__(self, event_log: EventLog, functions: frozenset[CodeType]) -> None:
        self.passes = 0
        self.again = CallsAgain()
        self._event_log = event_log
        self._functions = functions
        self._open: list[tuple[FrameType, _Spot, tuple[object, list[Any]], object]] = []
        self._sites: dict[_Spot, _CallSite] = {}
        self._events = 0

    def begin(self) -> None:
        """The next step begins."""
        self.passes += 1
        self._open.clear()
        self.again.end()

    def event(self, frame: FrameType, event: str, value: Any) -> None:
        """Take a call or a return."""
        self._events += 1
        if self._events > _MOST_EVENTS * len(_COMPARED_AT):
            sys.setprofile(None)
            self._sites.clear()
        elif event == "call" and frame.f_code in self._functions and not self._event_log.fetching:
            stack = user_stack(frame.f_back, 1)
            spot = (frame.f_code, stack[0] if stack else ("", 0, ""))
            site = self._sites.setdefault(spot, _CallSite())
            again = self.again.given(frame, spot[1]) if self.passes == 1 else None
            self._open.append((frame, spot, (None, []) if site.changed else given_to(frame, of_object), again))
        elif event == "return" and self._open and self._open[-1][0] is frame:
            _, spot, (key, tensors), again = self._open.pop()
            site = self._sites[spot]
            if self.passes == 1:
                with _disable_current_modes():
                    self.again.returned(spot[0], again, value)
            if not site.changed:
                with contextlib.suppress(Exception), _disable_current_modes():  # values of any kind
                    site.changed = not self._same(site, key, tensors, value)
                    return
                site.changed = True

    def _same(self, site: _CallSite, key: object, tensors: list[Any], value: Any) -> bool:
        """Return whether a call is what it was in the first step, or belongs to that."""
        if key is None or not site.calls < _MOST_KEYS:
            return False
        look = CallContents()
        digest = look.at(value)
        if look.numbers < _LEAST_NUMBERS:
            return False
        site.passes.add(self.passes)
        known = site.returned.get(key)
        if self.passes > 1:
            return known is not None and known.digest == digest and _is_fresh(known, tensors, look.values)
        site.calls += 1
        site.numbers = max(site.numbers, look.numbers)
        if known is None:
            site.returned[key] = _Returned(digest, look.values, [weakref.ref(each) for each in tensors])
        return known is None or known.digest == digest

    def facts(self) -> tuple[UnchangingCall, ...]:
        """Return the calls that were the same in every step."""
        found = []
        for (code, place), site in self._sites.items():
            if not site.changed and len(site.passes) == len(_COMPARED_AT) and place[0]:
                found.append(
                    UnchangingCall(
                        place=Frame(*place),
                        function=code.co_qualname,
                        file=os.path.abspath(code.co_filename),
                        calls=site.calls,
                        steps=len(site.passes),
                        numbers=site.numbers,
                    )
                )
        return tuple(found)


def _is_fresh(known: _Returned, tensors: list[Any], values: list[Any]) -> bool:
    """Return whether the same tensors were given, and what is returned is not what was returned before."""
    same = all(ref() is tensor for ref, tensor in zip(known.given, tensors, strict=True))
    kept = {id(value) for value in known.values}
    return same and not any(id(value) in kept for value in values)


PROBE = Probe(
    name="unchanging-calls",
    make=lambda deep: CallWatch(deep.event_log),
    step=CallWatch.step,
    stop=CallWatch.stop,
    causes={"unchanging_calls": CallWatch.facts, "repeated_calls": CallWatch.repeated},
    after=("loop-invariant",),
)
