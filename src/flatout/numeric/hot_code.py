"""One piece of a script's Python beside its compiled forms: which of them does the work, and when both do.

A form is compiled once its kinds of arguments have cost Python a while. Its first calls are made by Python, too, and
compared (fewer where a call takes long, as that of a metric does which comes once an epoch); then, so that it takes a
hundredth of the time at most, one now and then. What a form cannot give raises in it: what it has written is put back,
and Python does the work, errors and all.
"""

import ast
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flatout.numeric import served
from flatout.numeric.arithmetic import Untranslatable
from flatout.numeric.comparison import same_bits
from flatout.numeric.kinds import Kind, kind_of
from flatout.numeric.known_functions import known_name

__all__ = ["FIRST_PROVEN", "WORTH_S", "CompiledResult", "HotCode", "Unfinished"]

WORTH_S = 0.02
"""Seconds that Python spends with the same kinds of arguments before they are compiled."""
FIRST_PROVEN = 5
"""Calls of a new form that Python makes as well."""
LONG_S, FIRST_OF_LONG = 0.1, 2
"""What such a call takes where fewer are enough: it goes through its loops many times, and comes once an epoch."""

_MOST_FORMS = 8
_RARELY = 100  # times what a comparison takes, until the next one
_LEAST_GAIN = 1.2
_MANY_FAILURES = 20

Key = tuple[Kind | str | None, ...]
Arguments = Sequence[Any]


@dataclass(frozen=True, slots=True)
class CompiledResult:
    """What compiled code gave."""

    value: Any


@dataclass
class _State:
    """What is known of one combination of kinds."""

    key: Key
    left: str = ""  # why Python does it, for good
    form: Any = None
    order: tuple[int, ...] = ()  # of the arguments among the values of a call
    python_s: list[float] = field(default_factory=list)
    compiled_s: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    proven: int = 0
    failures: int = 0
    served: int = 0
    compare_from: float = 0.0
    serves: bool = False  # its results count

    @property
    def is_proven(self) -> bool:
        """Return whether Python need not make the next call as well."""
        long = bool(self.python_s) and min(self.python_s) >= LONG_S
        return self.serves or self.proven >= (FIRST_OF_LONG if long else FIRST_PROVEN)


class HotCode:
    """A function's body, or a loop, that is served compiled."""

    def __init__(self, name: str, body: Sequence[ast.stmt], variables: Sequence[str], outer: Sequence[str]) -> None:
        """Take the statements, the variables that are given to them, and what they read besides, as it is written."""
        self.name = name
        self._body = list(body)
        self._variables = tuple(variables)
        self._outer = tuple(outer)
        self.on_proven: Callable[[Key], None] = lambda key: None
        self._states: dict[Key, _State] = {}

    def begin(self, values: Arguments) -> "CompiledResult | Unfinished | None":
        """Return what compiled code gives for the values of its variables, and behind them of its outer names.

        Else Python is to do it: None, or what wants to know the outcome.
        """
        key = tuple([known_name(value) or kind_of(value) for value in values])
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= _MOST_FORMS:
                return None
            state = self._states[key] = _State(key)
        if state.left or not served.acts():
            return None
        if state.form is None:
            if state.spent_s < WORTH_S:
                return Unfinished(self, state)
            self.compile(key)
            if state.left:
                return None
        return self._run(state, [values[at] for at in state.order])

    def take(self, key: Key) -> None:
        """Compile the form for kinds for which another process has proven it; one call in each process is compared."""
        self.compile(key)
        self._states[key].serves = True

    def compile(self, key: Key) -> None:
        """Compile the form for a combination of kinds."""
        state = self._states.setdefault(key, _State(key))
        if state.form is not None or state.left:
            return
        given = len(self._variables)
        here = [at for at in range(given) if isinstance(key[at], Kind)]
        outer = {name: kind for name, kind in zip(self._outer, key[given:], strict=True) if kind is not None}
        names = [self._variables[at] for at in here]
        try:
            from flatout.numeric.forms import built

            state.form, more = built(self._body, names, [key[at] for at in here], outer)  # type: ignore[misc]
        except Untranslatable as error:
            self.leave(state, str(error))
        except Exception as error:  # a translation that numba does not take: Python goes on
            self.leave(state, f"it cannot be compiled ({type(error).__name__})")
        else:
            state.order = (*here, *(given + self._outer.index(name) for name in more))

    def _run(self, state: _State, arguments: Arguments) -> "CompiledResult | Unfinished | None":
        form = state.form
        try:
            given = form.packed(arguments)
        except Exception:  # a number in a list, or a tensor, that machine code does not take
            self._failed(state)
            return None
        if form.written and _overlap(given, form):
            return None
        if form.of_numpy and np.geterr()["under"] != "ignore":
            return None  # numpy is to tell of numbers that become too small
        if not state.serves or time.monotonic() > state.compare_from:
            return self._try(state, arguments, given)
        before = [given[at].copy(order="K") for at in form.written]
        try:
            result = form.call(*given)
        except Exception:  # whatever Python does here, it does itself
            for at, kept in zip(form.written, before, strict=True):
                given[at][...] = kept
            self._failed(state)
            return None
        state.served += 1
        form.tell_written(arguments)
        return CompiledResult(form.restored(result, arguments))

    def _try(self, state: _State, arguments: Arguments, given: list[Any]) -> "Unfinished | None":
        """Run the form on copies of what it writes to; Python does the work, and is compared."""
        form = state.form
        started = time.perf_counter()
        copies = list(given)
        for at in form.written:
            copies[at] = given[at].copy(order="K")
        try:
            result = form.call(*copies)
        except Exception:
            self._failed(state)
            return None
        restored = form.restored(result, arguments)
        took = time.perf_counter() - started
        return Unfinished(self, state, (restored, took, [(given[at], copies[at]) for at in form.written]))

    def _failed(self, state: _State) -> None:
        """Note that a call is left to Python: where most are, all are; machine code that ends early keeps memory."""
        state.failures += 1
        if state.failures >= _MANY_FAILURES and state.failures > state.served:
            self.leave(state, "Python has to do most of its calls")

    def leave(self, state: _State, reason: str) -> None:
        """Let Python do it from now on."""
        state.left, state.form = reason, None
        served.leaves(self.name, reason)

    def done(self, state: _State, took_s: float, tried: tuple[Any, float, list[Any]] | None, value: Any) -> None:
        """Python has done the work: learn how long it takes, and whether it came out the same."""
        state.spent_s += took_s
        if tried is None or state.form is None:
            return
        result, compiled_s, written = tried
        if not same_bits(result, value) or not all(array.tobytes() == copy.tobytes() for array, copy in written):
            self.leave(state, "gives another result than Python")
            if state.serves:
                served.differs(self.name, "gave another result than Python")
            return
        state.proven += 1
        state.python_s.append(took_s)
        state.compiled_s.append(compiled_s)
        if state.is_proven and not state.serves:
            state.serves = True
            if min(state.compiled_s) * _LEAST_GAIN > min(state.python_s):
                self.leave(state, "compiled code is no faster")
                return
            served.note(self.name)
            self.on_proven(state.key)
        if state.serves:
            state.compare_from = time.monotonic() + _RARELY * (took_s + compiled_s)


class Unfinished:
    """A call that Python makes, and whose outcome is of interest."""

    __slots__ = ("_piece", "_started", "_state", "_tried")

    def __init__(self, piece: HotCode, state: _State, tried: tuple[Any, float, list[Any]] | None = None) -> None:
        """Begin to count its time."""
        self._piece, self._state, self._tried = piece, state, tried
        self._started = time.perf_counter()

    def ended(self, value: Any) -> None:
        """Take what Python gave."""
        self._piece.done(self._state, time.perf_counter() - self._started, self._tried, value)


def _overlap(given: Sequence[Any], form: Any) -> bool:
    """Return whether an array that is written to may share memory with another argument."""
    return any(
        np.may_share_memory(given[at], given[other]) for at in form.written for other in form.arrays if other != at
    )
