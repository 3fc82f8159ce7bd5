"""Functions of the script that a data set calls for a sample, and which does most of the work alike each time.

Where a sample is random, what is slow about it often is not: `self.load(path)` decodes and shrinks an image, and the
lines behind it turn it at random. Such a function is found by its code's names, and stood in for while samples are
made: everything else runs as the script has it.
"""

import contextlib
import time
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple

from flatout.pipeline.inspect.determinism import samples_of, some_indices
from flatout.pipeline.read.sample_copies import copied, size_of
from flatout.watch.dataset_state import parts, random_states, same, seed_streams, undrawn
from flatout.watch.script_signals import any_but_signals

__all__ = ["CallPlace", "FoundCall", "dearest_call", "key_of", "standing_in"]

WORTH = 0.3
"""Of a sample's time, at least, for a function that is worth keeping results of."""

_DEPTH = 3  # functions within functions
_MOST = 24  # functions looked at
_LEAST_S = 1e-4  # of a call: below, looking it up takes as long
_COPIED = 0.5  # of a call, at most, for a copy of its result
_SEEDS = (11, 12)
_TIMED, _ROUNDS = 3, 2
_APART, _MET = 32, 2  # different samples that are drawn, and how many must meet to tell how much they draw from
_DRAWN, _DRAWN_S, _AGAIN = 6, 2.0, 0.3  # times samples are drawn anew, in seconds at most; calls that then come again
_VALUES = (str, bytes, int, float, bool, type(None))

Key = tuple[object, ...]


@dataclass(frozen=True)
class CallPlace:
    """Where a function stands: in a class, as its method, or in a module."""

    owner: Any = field(repr=False)  # a class, or the names of a module
    name: str
    raw: Any = field(repr=False)  # what stands there

    @property
    def is_method(self) -> bool:
        """Return whether it is given the data set first."""
        return isinstance(self.owner, type) and not isinstance(self.raw, staticmethod)

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""
        found: Callable[..., Any] = self.raw.__func__ if isinstance(self.raw, staticmethod) else self.raw
        return found

    @property
    def standing(self) -> Any:
        """What stands there now."""
        return self.owner.__dict__.get(self.name) if isinstance(self.owner, type) else self.owner.get(self.name)

    @property
    def label(self) -> str:
        """Return its name as messages have it."""
        return str(self.function.__qualname__)


class _Call(NamedTuple):
    """A call: what it was given, what it gave, and a copy of that from before the script had it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    kept: Any


@dataclass
class _Seen:
    """Calls of one function while some samples were made."""

    calls: list[_Call] = field(default_factory=list)
    seconds: float = 0.0
    against: str = ""


@dataclass(frozen=True)
class FoundCall:
    """A function whose results are worth keeping: how often a sample calls it, and what a result takes at most."""

    place: CallPlace
    share: float  # of a sample's time
    calls: int  # a sample, at most
    num_bytes: int


def key_of(place: CallPlace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key | None:
    """Return what a call is given, by value and without the data set; None where it is given anything but values."""
    given = (*args[1:],) if place.is_method else args
    try:
        return (*map(_part, given), *((name, _part(value)) for name, value in kwargs.items()))
    except TypeError:
        return None


def _part(value: Any) -> object:
    kind = type(value)
    if kind is float:  # a zero has a sign, and what is not a number is not equal to itself
        return kind, repr(value)
    if kind in _VALUES or isinstance(value, PurePath):
        return kind, value
    if kind is tuple:
        return kind, *map(_part, value)
    if hasattr(kind, "__array_interface__") and not value.shape:
        return kind, str(value.dtype), value.tobytes()
    raise TypeError(kind)


@contextlib.contextmanager
def standing_in(place: CallPlace, function: Callable[..., Any]) -> Iterator[None]:
    """Let `function` be called in the place of a function of the script's, by the main thread."""
    stood = staticmethod(function) if isinstance(place.raw, staticmethod) else function
    _put(place, stood)
    try:
        yield
    finally:
        if place.standing is stood:  # else the script has put something else there
            _put(place, place.raw)


def _put(place: CallPlace, value: Any) -> None:
    if isinstance(place.owner, type):
        type.__setattr__(place.owner, place.name, value)
    else:
        place.owner[place.name] = value


# -- which one --------------------------------------------------------------------------------------------------


def dearest_call(dataset: Any, inner: Any, indices: Sequence[int]) -> FoundCall | None:
    """Return the function of which results are worth keeping when samples of `dataset` are made; None for none.

    `inner`: the data set behind torch's own wrappers. The random streams are left where the samples have put them, and
    samples may leave traces in the data set: whoever asks puts both back. What the script's code raises comes through.
    """
    places = _places(inner)
    rounds = range(_ROUNDS if places else 0)  # on a machine that others use, one may be clocked badly
    found = next(filter(None, (_dearest(places, dataset, inner, indices) for _ in rounds)), None)
    return found if found is not None and _comes_again(found.place, dataset, inner, indices) else None


def _dearest(places: Sequence[CallPlace], dataset: Any, inner: Any, indices: Sequence[int]) -> FoundCall | None:
    seen = {id(place): _Seen() for place in places}
    with contextlib.ExitStack() as stack:
        for place in places:
            stack.enter_context(standing_in(place, _recorder(place, seen[id(place)], inner)))
        began = time.perf_counter()
        for index in indices:
            samples_of(dataset, [index])
        whole_s = time.perf_counter() - began
    dear = [place for place in places if seen[id(place)].seconds >= WORTH * whole_s]
    dear.sort(key=lambda place: -seen[id(place)].seconds)
    for place in dear:
        found = _judged(place, seen[id(place)], whole_s, len(indices))
        if found is not None:
            return found
    return None


def _comes_again(place: CallPlace, dataset: Any, inner: Any, indices: Sequence[int]) -> bool:
    """Return whether samples that are drawn anew call the function with what it was given before.

    One that is given what was drawn (a sequence that was cut at random) gives the same for the same, and is hardly ever
    given that: of 26 ways to cut, a second epoch meets that of the first in one of 26 samples. Where what is drawn does
    not belong to the sample (one of 100 volumes), different samples meet in it: how many there are to draw from is told
    by how many meet.
    """
    told = _Told(place, inner)
    until = time.perf_counter() + _DRAWN_S
    with standing_in(place, lambda *args, **kwargs: told.call(*args, **kwargs)):
        for draw in range(_DRAWN + 1):
            if draw == 1:
                told.asked = told.again = 0
            if draw <= 1 or time.perf_counter() < until:
                seed_streams(draw)
                for index in indices:
                    samples_of(dataset, [index])
        if told.again >= _AGAIN * told.asked:
            return True
        told.forget()
        seed_streams(_DRAWN + 1)
        for index in some_indices(len(dataset), _APART):
            if time.perf_counter() < until + _DRAWN_S:
                samples_of(dataset, [index])
    return told.again >= _MET and told.asked**2 / (2 * told.again) <= len(dataset)


class _Told:
    """Stands for the function, and counts calls that were given what an earlier one was."""

    def __init__(self, place: CallPlace, inner: Any) -> None:
        self._place, self._inner = place, inner
        self.forget()

    def forget(self) -> None:
        self._known: dict[Key, Any] = {}
        self.asked = self.again = 0

    def call(self, *args: Any, **kwargs: Any) -> Any:
        place = self._place
        key = key_of(place, args, kwargs)
        if key is None or (place.is_method and not (args and args[0] is self._inner)):
            return place.function(*args, **kwargs)
        self.asked += 1
        if key in self._known:
            self.again += 1
        else:
            self._known[key] = place.function(*args, **kwargs)
        return copied(self._known[key])


def _places(dataset: Any) -> list[CallPlace]:
    """Return the functions that `__getitem__` of a data set names, and those that these name."""
    kind = type(dataset)
    todo = [(getattr(kind, name, None), 0) for name in ("__getitem__", "__getitems__")]
    found: dict[tuple[int, str], CallPlace] = {}
    while todo:
        function, depth = todo.pop(0)
        if not isinstance(function, types.FunctionType) or function.__module__.partition(".")[0] == "torch":
            continue
        for name in _names(function.__code__):
            for place in (_method(kind, name), _of_module(function, name)):
                if place is not None and (id(place.owner), name) not in found and len(found) < _MOST:
                    found[id(place.owner), name] = place
                    if depth < _DEPTH:
                        todo.append((place.function, depth + 1))
    return list(found.values())


def _names(code: types.CodeType) -> list[str]:
    inner = [name for const in code.co_consts if isinstance(const, types.CodeType) for name in _names(const)]
    return [*code.co_names, *inner]


def _method(kind: type, name: str) -> CallPlace | None:
    if name.startswith("__"):
        return None
    owner = next((one for one in kind.__mro__ if name in one.__dict__), None)
    if owner is None or owner.__module__.partition(".")[0] in ("torch", "builtins", "typing"):
        return None
    raw = owner.__dict__[name]
    plain = raw.__func__ if isinstance(raw, staticmethod) else raw
    return CallPlace(owner, name, raw) if isinstance(plain, types.FunctionType) else None


def _of_module(function: types.FunctionType, name: str) -> CallPlace | None:
    there = function.__globals__.get(name)
    if isinstance(there, types.FunctionType) and there.__globals__ is function.__globals__:
        return CallPlace(function.__globals__, name, there)
    return None


def _recorder(place: CallPlace, seen: _Seen, inner: Any) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        before = random_states()
        began = time.perf_counter()
        result = place.function(*args, **kwargs)
        seen.seconds += time.perf_counter() - began
        if not undrawn(before, random_states()):
            seen.against = "it draws random numbers"
        if place.is_method and not (args and args[0] is inner):
            seen.against = "it is called of another object"
        try:
            seen.calls.append(_Call(args, kwargs, result, copied(result)))
        except ValueError as error:
            seen.against = f"it returns {error}"
        return result

    return call


def _judged(place: CallPlace, seen: _Seen, whole_s: float, samples: int) -> FoundCall | None:
    """Return a function whose calls give the same again, in memory of their own, and are dearer than copies of that."""
    if seen.against or not seen.calls or seen.seconds < _LEAST_S * len(seen.calls):
        return None
    largest = 0
    try:
        for call in seen.calls:
            again = [_again(place, call, seed) for seed in _SEEDS]
            steady = all(same(call.kept, one) for one in again)
            if key_of(place, call.args, call.kwargs) is None or not steady or not _apart(call.result, *again):
                return None
            if min(_copying_s(call.kept) for _ in range(_TIMED)) > _COPIED * seen.seconds / len(seen.calls):
                return None
            largest = max(largest, size_of(call.kept))
    except any_but_signals():  # a result that is not copied, or a call that is not made twice
        return None
    calls = -(-len(seen.calls) // samples)
    return FoundCall(place, min(1.0, seen.seconds / whole_s), calls, largest)


def _copying_s(kept: Any) -> float:
    began = time.perf_counter()
    copied(kept)
    return time.perf_counter() - began


def _again(place: CallPlace, call: _Call, seed: int) -> Any:
    seed_streams(seed)
    return place.function(*call.args, **call.kwargs)


def _apart(*results: Any) -> bool:
    """Return whether results have no memory in common: else the data set holds what it returns."""
    found = [_memory(result) for result in results]
    return sum(map(len, found)) == len(set().union(*found))


def _memory(result: Any) -> set[int]:
    found = set[int]()
    for part in parts(result):
        if hasattr(part, "untyped_storage"):
            found.add(part.untyped_storage().data_ptr())
        elif hasattr(part, "__array_interface__"):
            found.add(part.__array_interface__["data"][0])
        elif isinstance(part, list | dict | set | bytearray) or hasattr(part, "getbands"):
            found.add(id(part))
    return found - {0}
