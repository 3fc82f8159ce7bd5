"""Calls of the user's functions that are given the same and return the same numbers in every step, in plain Python too.

In one step of the deep run the functions are clocked; those that take a part of it that matters are compared in three
later steps, by what they are given (numbers, names, tensors that were not written to) and by the contents of what they
return. A function that returns few numbers, or what it keeps, is none. Nothing is looked at where somebody else
profiles the thread, or where functions are compiled.
"""

import contextlib
import hashlib
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.user_places import is_user_file, user_stack
from flatout.schema.run import Frame, Step, UnchangingCall

__all__ = ["PROBE", "CallWatch"]

_CLOCKED_AT, _COMPARED_AT = 5, (7, 8, 10)
_SHARE = 0.03  # of the step that was clocked
_MOST_FUNCTIONS = 40
_MOST_EVENTS = 500_000  # of a step
_LEAST_NUMBERS = 16
_MOST_NUMBERS, _MOST_BYTES = 300_000, 2**26
_MOST_KEYS = 256
_GENERATOR = 0x20 | 0x80 | 0x100 | 0x200  # flags of code: generators and coroutines return many times
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, slice)

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

    def facts(self) -> tuple[UnchangingCall, ...]:
        """Return the calls that were the same in every step that was compared."""
        return self._compared.facts() if self._compared is not None else ()


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
        self._event_log = event_log
        self._functions = functions
        self._open: list[tuple[FrameType, _Spot, object, list[Any]]] = []
        self._sites: dict[_Spot, _CallSite] = {}
        self._events = 0

    def begin(self) -> None:
        """The next step begins."""
        self.passes += 1
        self._open.clear()

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
            key, tensors = (None, []) if site.changed else _given(frame)
            self._open.append((frame, spot, key, tensors))
        elif event == "return" and self._open and self._open[-1][0] is frame:
            _, spot, key, tensors = self._open.pop()
            site = self._sites[spot]
            if not site.changed:
                with contextlib.suppress(Exception), _disable_current_modes():  # values of any kind
                    site.changed = not self._same(site, key, tensors, value)
                    return
                site.changed = True

    def _same(self, site: _CallSite, key: object, tensors: list[Any], value: Any) -> bool:
        """Return whether a call is what it was in the first step, or belongs to that."""
        if key is None or not site.calls < _MOST_KEYS:
            return False
        look = _Look()
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


def _given(frame: FrameType) -> tuple[object, list[Any]]:
    """Return what a function is given, as a key, and the tensors among it; None where these may be others each time."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    tensors: list[Any] = []
    with contextlib.suppress(Exception):
        given = frame.f_locals
        return tuple(_simple(given[name], tensors) for name in code.co_varnames[:count] if name in given), tensors
    return None, tensors


def _simple(value: Any, tensors: list[Any]) -> object:
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise ValueError("a tensor that learns, or is made of one")
        tensors.append(value)
        return id(value), value._version
    if type(value) in _PLAIN:
        return repr(value)
    if type(value) in (list, tuple) and len(value) <= _LEAST_NUMBERS:
        return tuple(_simple(each, tensors) for each in value)
    if type(value) is dict and len(value) <= _LEAST_NUMBERS:
        return tuple((repr(key), _simple(each, tensors)) for key, each in value.items())
    return id(value)


class _Look:
    """Looks at what a function returns."""

    def __init__(self) -> None:
        self.numbers = 0
        self.values: list[Any] = []

    def at(self, value: Any) -> object:
        """Return what equal values have in common; raises where that cannot be told."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray":
            self.values.append(value)
            return self._contents(value, value.size, (str(value.dtype), value.shape))
        if isinstance(value, (bool, int, float, complex)):
            self._count(1)
            return repr(value)
        if value is None or isinstance(value, (str, torch.dtype, torch.device)):
            return repr(value)
        if isinstance(value, dict):
            return tuple((self.at(key), self.at(each)) for key, each in value.items())
        if isinstance(value, (list, tuple)):
            return tuple(self.at(each) for each in value)
        raise TypeError(type(value))

    def _tensor(self, tensor: torch.Tensor) -> object:
        if tensor.is_sparse:
            whole = tensor.detach().coalesce()
            return tuple(whole.shape), self._tensor(whole.indices()), self._tensor(whole.values())
        self.values.append(tensor)
        if tensor.device.type != "cpu" or tensor.nbytes > _MOST_BYTES:
            raise ValueError(tensor.device)
        flat = tensor.detach().reshape(-1).contiguous().view(torch.uint8).numpy()
        return self._contents(flat, tensor.numel(), (str(tensor.dtype), tuple(tensor.shape)))

    def _contents(self, array: Any, numbers: int, form: object) -> object:
        if array.dtype.hasobject or array.nbytes > _MOST_BYTES:
            raise ValueError(form)
        self.numbers += numbers
        return form, hashlib.blake2b(array.tobytes(), digest_size=16).digest()

    def _count(self, numbers: int) -> None:
        self.numbers += numbers
        if self.numbers > _MOST_NUMBERS:
            raise ValueError("too many numbers")


PROBE = Probe(
    name="unchanging-calls",
    make=lambda deep: CallWatch(deep.event_log),
    step=CallWatch.step,
    stop=CallWatch.stop,
    causes={"unchanging_calls": CallWatch.facts},
    after=("loop-invariant",),
)
