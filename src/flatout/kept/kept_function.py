"""A function of the user's that is given the same again, and what it returned then.

A call is made three times before its result is kept: once to see what it takes, and twice watched from inside. The
second of these must run no other code, return the same bits in other memory, and leave all that was read as it was.
From then on a call with the same key gets a copy for as long as everything that was read is as it was.

A function that is given other tensors in each step, several times each (neighbours that each layer looks for), is known
once results of some keys were kept and used. From then on a new key is watched once: it must run no code that was not
proven so, and return memory that none of what it read lies in.
"""

import os
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from flatout.kept.call_key import CallGiven, given, settings_now, unusual_moment
from flatout.kept.kept_result import KeptResult, Unkeepable
from flatout.kept.lying_places import Places
from flatout.kept.observed_call import ObservedCall, observe
from flatout.kept.read_state import ReadState
from flatout.kept.reports import Reports
from flatout.kept.shared_defaults import SharedDefaults
from flatout.watch.ambient import Ambient
from flatout.watch.main_thread import off_main_thread

__all__ = ["KeptFunction"]

_MOST_KEPT, _MOST_BYTES = 64, 256 * 1024**2
_MOST_LOST = 12  # results that were kept and could not be used, before so many times as many were
_WORTH = 0.33  # of what the call takes, at most, for looking and copying
_KNOWN = 3  # keys whose results were used, after which a new one is watched once

_TIMED = 3
_NOT_WORTH_IT = "looking whether anything has changed, and copying, takes longer than a third of the call"

_under_way: list[object] = []
"""The call that is watched or proven just now: what it calls is not answered from memory."""


@dataclass(eq=False)
class _Call:
    """What is known of calls with one key; `seen` is what was watched of the last one, until its result is kept."""

    objects: list[weakref.ref[Any]]
    plain_s: float
    seen: ObservedCall | None = None
    state: ReadState | None = None
    result: KeptResult | None = None
    served: int = 0

    @property
    def is_gone(self) -> bool:
        """Return whether something that was given is gone, so that nobody can give it again."""
        return any(ref() is None for ref in self.objects)

    @property
    def is_kept(self) -> bool:
        """Return whether the call may be answered from memory."""
        return self.result is not None and self.seen is None

    def changed(self) -> str:
        """Return what has changed of all that it read, in words; an empty string for nothing."""
        try:
            return self.state.changed() if self.state is not None else "nothing"
        except Exception as error:  # objects of any kind
            return f"something that cannot be looked at ({type(error).__name__})"

    def is_reached(self, what: CallGiven) -> bool:
        """Return whether a list that is given is one that was read besides: code may ask, or write to one of them."""
        return self.state is not None and not self.state.places.objects.isdisjoint(what.containers)

    @classmethod
    def given(cls, objects: list[Any]) -> "_Call":
        """Return a call that is given these objects; when one of them is gone, so is what was held for it.

        Raises:
            TypeError: one of them cannot be told from another one later.
        """
        call = cls([], 0.0)
        known = weakref.ref(call)

        def forget(_gone: object) -> None:
            if (one := known()) is not None:
                one.state = None  # which holds lists and dictionaries of the objects
                if one.seen is not None:
                    one.seen.result = None

        call.objects = [weakref.ref(each, forget) for each in objects]
        return call

    def is_of(self, objects: list[Any]) -> bool:
        """Return whether the objects that were given are the same ones."""
        return all(ref() is each for ref, each in zip(self.objects, objects, strict=True))


@dataclass
class _Tally:
    """What became of results.

    Attributes:
        served: calls that were answered.
        lost: results that were kept and could not be used.
        used: those that were.
        known: what was seen of the calls that two proofs were made of: the code that ran, and what it reads.
    """

    served: int = 0
    lost: int = 0
    used: int = 0
    known: ObservedCall = field(default_factory=ObservedCall)


class KeptFunction:
    """Answers calls of one function from memory where that is known to be right; calls it everywhere else."""

    def __init__(self, function: Callable[..., Any], name: str, reports: Reports, acted: Callable[[], None]) -> None:
        """Keep nothing yet; `acted` is told of each call that was answered."""
        self.off = False
        self._defaults = SharedDefaults(function)
        self._is_compiling = torch.compiler.is_compiling
        self._function, self._name, self._reports, self._acted = function, name, reports, acted
        self._calls: OrderedDict[object, _Call] = OrderedDict()
        self._ambient: Ambient | None = None
        self._num_bytes = 0
        self._tally = _Tally()
        forked = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (known := forked()) and known())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns."""
        self._defaults.share()
        if self._is_compiling() or self.off or off_main_thread() or _under_way or unusual_moment():
            return self._function(*args, **kwargs)
        what = given(args, kwargs)
        if what is None or not self._as_ever():
            return self._function(*args, **kwargs)
        key = (what.key, settings_now())
        call = self._calls.get(key)
        if call is None or not call.is_of(what.objects):
            return self._first(key, what, args, kwargs)
        if call.is_reached(what):
            return self._function(*args, **kwargs)
        if not call.is_kept:
            return self._watched(key, call, what, args, kwargs)
        if lost := call.changed():
            self._lose(key, lost)
            return self._function(*args, **kwargs)
        if self._reports.pace.due:
            return self._proven(key, call, args, kwargs)
        return self._answered(call, args, kwargs)

    def stands_in(self, function: FunctionType) -> None:
        """Have `function`, which calls this one, show the defaults of what it stands for, and take those set on it."""
        self._defaults.add(function)

    def _answered(self, call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert call.result is not None
        try:
            made = call.result.make()
        except Exception as error:  # out of memory
            self.stop(f"its result could not be copied ({type(error).__name__})")
            return self._function(*args, **kwargs)
        call.served += 1
        self._tally.used += call.served == 1
        self._tally.served += 1
        self._acted()
        return made

    def _as_ever(self) -> bool:
        """Return whether settings of the process are those under which results are kept."""
        self._ambient = self._ambient or Ambient(folder=False)
        return self._ambient.as_before()

    def _forked(self) -> None:
        self.off = True

    def stop(self, reason: str) -> None:
        """Answer nothing any more."""
        self.off = True
        self._calls.clear()
        self._reports.left(f"{self._name}: {reason}")

    # -- a call that is not known -------------------------------------------------------------------------------

    def _first(self, key: object, what: CallGiven, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function as it is, and note what that takes."""
        try:
            call = _Call.given(what.objects)
        except TypeError:
            self.stop("it is given objects that cannot be told apart")
            return self._function(*args, **kwargs)
        self._drop(key)
        self._drop_what_is_gone()
        if self.off or self._tally.used >= _KNOWN:
            return self._function(*args, **kwargs) if self.off else self._at_once(key, call, args, kwargs)
        start = time.perf_counter()
        result = self._function(*args, **kwargs)
        call.plain_s = time.perf_counter() - start
        waiting = [known for known, call in self._calls.items() if not call.is_kept]
        if len(waiting) >= _MOST_KEPT:
            self._drop(waiting[0])
            self._tally.lost += 1
            self._give_up_if_useless("what it is given")
        self._calls[key] = call
        return result

    def _at_once(self, key: object, call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function that is known, watch it, and keep what it returns.

        What its code may read and write is looked at before: the call is made once, and has to leave that as it was.
        """
        what = given(args, kwargs)
        assert what is not None
        try:
            state = ReadState(self._tally.known, self._roots(what))
        except Exception as error:  # objects of any kind
            self.stop(f"it cannot be watched ({type(error).__name__}: {error})")
        if self.off or state.refused or not state.places.objects.isdisjoint(what.containers):
            return self._function(*args, **kwargs)
        start = time.perf_counter()
        self._calls[key] = call
        result = self._watched(key, call, what, args, kwargs)
        call.plain_s = time.perf_counter() - start
        if not self.off and call.seen is not None and self._is_as_proven(call, state):
            call.seen, call.state = None, state
            self._make_room(call)
        return result

    def _is_as_proven(self, call: _Call, before: ReadState) -> bool:
        """Return whether a call that was watched once ran proven code alone, and returned nothing that was there."""
        assert call.seen is not None
        mine = Places(call.seen.result)
        return call.seen.codes <= self._tally.known.codes and not mine.meets(before.places) and not before.changed()

    def _roots(self, what: CallGiven) -> dict[str, Any]:
        """Return the function and what it is given, by what they are called."""
        objects = {f"argument {number} of {self._name}": each for number, each in enumerate(what.objects)}
        return {self._name: self._function, **objects}

    def _watched(self, key: object, call: _Call, what: CallGiven, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function and watch it; keep what it returns where nothing speaks against that."""
        _under_way.append(self)
        try:
            seen = observe(self._function, args, kwargs)
        finally:
            _under_way.pop()
        again = given(args, kwargs)
        if again is None or again.key != what.key:
            seen.refuse("it changes what it is given")
        if not seen.refused:
            try:
                if Places(seen.result).meets(Places(args, kwargs)):
                    seen.refuse("it returns what it is given")
                seen.refuse(self._begin(call, seen, what) if call.seen is None else self._keep(key, call, seen))
            except Unkeepable as error:
                seen.refuse(str(error))
            except Exception as error:  # objects of any kind: the call itself was made
                seen.refuse(f"it cannot be watched ({type(error).__name__}: {error})")
        if seen.refused and not self.off:
            self.stop(seen.refused)
        elif key in self._calls and call.is_reached(what):
            self._lose(key, "a list that it is given, and reads besides,")
        return seen.result

    def _begin(self, call: _Call, seen: ObservedCall, what: CallGiven) -> str:
        """Take what a call read as it is now; return why that cannot be told, "" where it can."""
        call.state = ReadState(seen, self._roots(what))
        result = KeptResult(seen.result)
        if result.num_bytes > _MOST_BYTES:
            return f"it returns more than {_MOST_BYTES >> 20} MiB"
        call.result, call.seen = result, seen
        self._num_bytes += result.num_bytes
        for other, one in list(self._calls.items()):  # those that were not seen again hold results, too
            if self._num_bytes > _MOST_BYTES and one is not call and one.result is not None and not one.is_kept:
                self._drop(other)
        return call.state.refused

    def _keep(self, key: object, call: _Call, seen: ObservedCall) -> str:
        """Keep what the call returned; return why that is never done, "" where it is, or may be another time."""
        before, call.seen = call.seen, None
        assert before is not None
        assert call.result is not None
        changed = call.changed() or ("" if seen.codes <= before.codes else "the way that its code takes")
        if changed:
            self._lose(key, changed)
            return ""
        if Places(before.result).meets(Places(seen.result)):
            return "it returns what it keeps itself"
        if not call.result.is_same(seen.result):
            return "it returns other values each time"
        if not _is_worth_it(call):
            return _NOT_WORTH_IT
        self._tally.known.add(seen)
        self._make_room(call)
        return ""

    def _make_room(self, call: _Call) -> None:
        """Forget results that were kept before `call`, where there are too many."""
        kept = [known for known, one in self._calls.items() if one.is_kept and one is not call]
        while kept and (self._num_bytes > _MOST_BYTES or len(kept) >= _MOST_KEPT):
            self._lose(kept.pop(0), "what it is given")

    # -- what was kept ------------------------------------------------------------------------------------------

    def _drop(self, key: object) -> None:
        call = self._calls.pop(key, None)
        if call is not None and call.result is not None:
            self._num_bytes -= call.result.num_bytes

    def _drop_what_is_gone(self) -> None:
        """Forget calls whose arguments nobody has any more; those whose result was never used were kept for nothing."""
        for key, call in list(self._calls.items()):
            if call.is_gone and call.served:
                self._drop(key)
            elif call.is_gone:
                self._lose(key, "what it is given")

    def _lose(self, key: object, what: str) -> None:
        """Forget a result: what it was made from has changed."""
        self._drop(key)
        self._tally.lost += 1
        self._give_up_if_useless(f"{what} changes between calls")

    def _give_up_if_useless(self, reason: str) -> None:
        if self._tally.lost >= _MOST_LOST and self._tally.lost > self._tally.served / 8:
            self.stop(reason)

    def _proven(self, key: object, call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function as it is, and hold what is kept against that."""
        _under_way.append(self)
        try:
            with self._reports.pace.proving():
                start = time.perf_counter()
                result = self._function(*args, **kwargs)
                call.plain_s = min(call.plain_s, time.perf_counter() - start)
        finally:
            _under_way.pop()
        assert call.result is not None
        if call.result.is_same(result):
            if not _is_worth_it(call):  # the first call may have been slow
                self.stop(_NOT_WORTH_IT)
        elif changed := call.changed():  # by another thread, meanwhile
            self._lose(key, changed)
        else:
            self._differs(call)
        return result

    def _differs(self, call: _Call) -> None:
        """Say that calls were answered that may have been answered wrongly.

        Raises:
            ChangedTooLate: the training is not to go on after that.
        """
        self.off = True
        self._calls.clear()
        reason = f"{self._name} returned other values than were kept, after {call.served} calls answered from memory"
        self._reports.wrong(reason, "What it returns depends on something that flatout does not see.", "kept-calls")


def _is_worth_it(call: _Call) -> bool:
    """Return whether an answer from memory takes much less than the call."""
    return min(_answer_s(call) for _ in range(_TIMED)) <= _WORTH * call.plain_s


def _answer_s(call: _Call) -> float:
    """Return what an answer from memory takes."""
    assert call.result is not None
    start = time.perf_counter()
    call.changed()
    call.result.make()
    return time.perf_counter() - start
