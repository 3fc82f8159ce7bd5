"""Answers that hold for all objects of a class, remembered as long as the class lives and not longer."""

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["PerClassCache"]

T = TypeVar("T")


class PerClassCache(Generic[T]):
    """What `find` says of a class, found once. Also of a class that cannot be hashed; none is kept alive by it."""

    def __init__(self, find: Callable[[Any], T]) -> None:
        """Know nothing yet."""
        self._find = find
        self._known: dict[int, tuple[weakref.ref[Any], T]] = {}

    def __call__(self, kind: Any) -> T:
        """Return what holds for `kind`."""
        known = self._known.get(id(kind))
        if known is not None and known[0]() is kind:
            return known[1]
        number, found = id(kind), self._find(kind)
        self._known[number] = weakref.ref(kind, lambda gone: self._forget(number, gone)), found
        return found

    def _forget(self, number: int, gone: "weakref.ref[Any]") -> None:
        if number in self._known and self._known[number][0] is gone:
            del self._known[number]
