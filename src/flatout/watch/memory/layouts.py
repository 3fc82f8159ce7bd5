"""Where this Python keeps what its containers contain, tried in this process before anything relies on it.

The tables behind lists, dictionaries, sets, deques, functions and instances are private to an interpreter. What
memory.c assumes of them held for CPython 3.11 to 3.13. Each kind is tried once a process: an object is made, its memory
noted, the object changed in every way that there is, and each change must show. A kind that fails is not watched, and
what holds such an object is not kept.
"""

import collections
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

try:
    from flatout.watch.memory import _memory as compiled
except ImportError:  # no compiler when flatout was installed
    compiled = None  # type: ignore[assignment]

__all__ = [
    "DICT",
    "HEAD",
    "IGNORED",
    "INSTANCE",
    "LEAF",
    "LIST",
    "SET",
    "TUPLE",
    "WORD",
    "body_ranges",
    "class_ranges",
    "compiled",
    "deque_ranges",
    "function_ranges",
    "holds",
    "is_plain_instance",
    "word_at",
]

LEAF, LIST, TUPLE, DICT, SET, INSTANCE, IGNORED = range(7)  # as in memory.c
HEAD, WORD = 16, 8
_MANAGED_DICT = 1 << 4  # Py_TPFLAGS_MANAGED_DICT, from CPython 3.11 on
_MANAGED = 3 * WORD  # in front of an instance: where its dictionary is
_BLOCK = 64  # items of a block of a deque
_BASES = 336  # bytes into a class: where its bases are, and behind these the order in which they are looked into
_FUNCTION_WORDS = 8  # globals, builtins, name, qualified name, code, defaults, named defaults, closure

Change = Callable[[Any], object]


def word_at(address: int) -> int:
    """Return the word that stands at `address`."""
    import ctypes

    return ctypes.c_uint64.from_address(address).value


def is_plain_instance(kind: type) -> bool:
    """Tell whether instances of a class have a dictionary of attributes, and nothing else."""
    if not kind.__flags__ & _MANAGED_DICT or kind.__itemsize__:
        return False
    own = kind.__basicsize__ - HEAD
    return own == 0 or (own == WORD and getattr(kind, "__weakrefoffset__", 0) == HEAD)


_CONTAINER_BODY = {
    "list": HEAD + 3 * WORD,
    "dict": HEAD + 4 * WORD,
    "set": HEAD + 23 * WORD,
    "frozenset": HEAD + 23 * WORD,
}


def body_ranges(thing: Any, container: str | None) -> Iterator[tuple[int, int]]:
    """Yield where an object has what is no attribute of its dictionary: slots, and the fields of compiled classes."""
    kind = type(thing)
    start = id(thing) + _CONTAINER_BODY.get(container or "", HEAD)
    end = id(thing) + kind.__basicsize__
    holes = sorted(id(thing) + offset for offset in (kind.__weakrefoffset__, kind.__dictoffset__) if offset > 0)
    if kind.__flags__ & _MANAGED_DICT:
        yield id(thing) - _MANAGED, WORD
    elif kind.__dictoffset__ > 0:
        yield id(thing) + kind.__dictoffset__, WORD
    for hole in [*holes, end]:
        if start < hole:
            yield start, hole - start
        start = max(start, hole + WORD)


def deque_ranges(items: Any) -> Iterator[tuple[int, int]]:
    """Yield where a deque has its length, its ends, its count of changes, and its blocks."""
    at = id(items)
    yield at + HEAD, 6 * WORD
    block, end = word_at(at + HEAD + WORD), word_at(at + HEAD + 2 * WORD)
    for _ in range(len(items) // _BLOCK + 2):
        yield block + WORD, _BLOCK * WORD
        if block == end:
            return
        block = word_at(block + (_BLOCK + 1) * WORD)


def function_ranges(function: Any) -> Iterator[tuple[int, int]]:
    """Yield where a function has its code, its defaults and its closure."""
    yield id(function) + HEAD, _FUNCTION_WORDS * WORD


def class_ranges(kind: type) -> Iterator[tuple[int, int]]:
    """Yield where a class has its bases and the order in which they are looked into."""
    yield id(kind) + _BASES, 2 * WORD


@functools.cache
def holds(kind: str) -> bool:
    """Tell whether objects of `kind`, a key of the table below, are laid out as is assumed."""
    if compiled is None:
        return False
    make, changes = _TRIED[kind]
    try:
        return all(_shows(kind, make, change) for change in changes)
    except (TypeError, ValueError, SystemError):
        return False


def _shows(kind: str, make: Callable[[], Any], change: Change) -> bool:
    thing = make()
    watch = _watch_of(kind, thing)
    before = watch.look()
    change(thing)
    return before is None and watch.look() == id(thing)


def _watch_of(kind: str, thing: Any) -> Any:
    tracer = compiled.Tracer({int: LEAF, str: LEAF, dict: IGNORED, types.CodeType: LEAF, type(None): LEAF})
    if kind in _RANGES:
        for start, length in _RANGES[kind](thing):
            tracer.note(id(thing), start, length)
    elif kind == "cell":
        tracer.note(id(thing), id(thing) + HEAD, WORD)
    elif kind == "some":
        tracer.some(id(thing), thing, ["b", "c"])
    else:
        tracer.inside(thing, {"list": LIST, "dict": DICT, "set": SET, "instance": INSTANCE}[kind])
    pairs, owners, _ = tracer.ranges()
    return compiled.Watch(pairs, owners, b"", b"", b"", -1)


_RANGES: dict[str, Callable[[Any], Iterator[tuple[int, int]]]] = {
    "class": class_ranges,
    "deque": deque_ranges,
    "function": function_ranges,
}


class _Plain:
    def __init__(self) -> None:
        self.a, self.b = 1001, "b"


class _Other(_Plain):
    pass


def _class() -> type:
    return type("_Made", (_Plain,), {})


def _function() -> Any:
    held = 1

    def made(x: int = 1, *, y: int = 2) -> int:
        return x + y + held

    return made


def _cell() -> Any:
    return _function().__closure__[0]


def _dict() -> dict[Any, Any]:
    return {"a": 1001, "b": 1002, "c": 1003}


def _numbered() -> dict[Any, Any]:
    return {number: number + 1000 for number in range(40)}


def _swapped(held: dict[Any, Any]) -> None:
    held.update(dict(zip(list(held), reversed(list(held.values())), strict=True)))


_OF_DICTS: tuple[Change, ...] = (
    lambda d: d.__setitem__(next(iter(d)), 5005),
    lambda d: d.__setitem__("new", 5),
    lambda d: d.popitem(),
    lambda d: d.update({list(d)[1]: 7007}),
    lambda d: d.clear(),
    _swapped,
)
_OF_LISTS: tuple[Change, ...] = (
    lambda v: v.append(1),
    lambda v: v.__setitem__(-1, 4004),
    lambda v: v.pop(0),
    lambda v: v.reverse(),
    lambda v: v.insert(1, 7),
)
_OF_SETS: tuple[Change, ...] = (
    lambda v: v.add(4004),
    lambda v: v.pop(),
    lambda v: v.discard(max(v)),
    lambda v: (v.discard(max(v)), v.add(5005)),
)
_OF_INSTANCES: tuple[Change, ...] = (
    lambda v: setattr(v, "a", 2002),
    lambda v: setattr(v, "new", 1),
    lambda v: delattr(v, "b"),
    lambda v: v.__dict__.update(a=3),
    lambda v: setattr(v, "__dict__", {"a": 1001, "b": "b"}),
    lambda v: setattr(v, "__class__", _Other),
)

_TRIED: dict[str, tuple[Callable[[], Any], tuple[Change, ...]]] = {
    "list": (lambda: [1001, 1002, 1003] * 30, _OF_LISTS),
    "dict": (_numbered, _OF_DICTS),
    "some": (
        _dict,
        (lambda d: d.update(b=5005), lambda d: d.update(c=5005), lambda d: d.pop("b"), lambda d: d.clear()),
    ),
    "set": (lambda: {number * 37 + 1000 for number in range(60)}, _OF_SETS),
    "instance": (_Plain, _OF_INSTANCES),
    "deque": (
        lambda: collections.deque(range(1000, 1200)),
        (
            lambda v: v.append(1),
            lambda v: v.appendleft(1),
            lambda v: v.rotate(3),
            lambda v: v.__setitem__(70, 4004),
            lambda v: v.__setitem__(-1, 4004),
            lambda v: v.popleft(),
        ),
    ),
    "function": (
        _function,
        (
            lambda f: setattr(f, "__defaults__", (5005,)),
            lambda f: setattr(f, "__kwdefaults__", {"y": 9}),
            lambda f: setattr(f, "__code__", f.__code__.replace(co_firstlineno=99)),
        ),
    ),
    "class": (_class, (lambda kind: setattr(kind, "__bases__", (_Other,)),)),
    "cell": (_cell, (lambda cell: setattr(cell, "cell_contents", 4004),)),
}
