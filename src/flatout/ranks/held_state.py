"""Objects that code may change besides what it returns: containers, arrays, tensors, generators of random numbers.

They are found from some roots, with what they hold; what has changed since is told, and put back.
"""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch

from flatout.ranks.streams import is_generator

__all__ = ["HeldState", "same_tensors"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, set, dict, deque, bytearray)
_NONE_OF_THEM = (torch.nn.Module, type, FunctionType, torch.dtype, torch.device, torch.Size)
_DEEPEST = 5
_MOST = 4000  # objects
_MOST_ITEMS = 10_000  # of a container whose items are compared; of a larger one the number of items is
_MOST_LOOKED_INTO = 1000  # items of one container
_MOST_BYTES = 1 << 26  # of all tensors and arrays


class HeldState:
    """What mutable objects hold, that are reached from some roots; generators are found, and left to `streams`."""

    def __init__(self, roots: Iterable[Any], is_own: Callable[[Any], bool], most_bytes: int = _MOST_BYTES) -> None:
        """Take down what there is; `is_own`: whether an object has fields that the script may have given it."""
        self.generators: list[Any] = []
        self._containers: list[tuple[Any, Any, int]] = []
        self._values: list[tuple[Any, Any]] = []
        self._is_own = is_own
        self._room = most_bytes
        self._seen: dict[int, Any] = {}
        for root in roots:
            self._take(root, _DEEPEST)

    def put_back(self) -> str:
        """Give all objects what they held; return what had changed, "" where nothing had."""
        changed = ""
        for container, before, length in self._containers:
            if not _same_items(container, before, length):
                changed = f"a {type(container).__name__}"
                with contextlib.suppress(Exception):  # of a class of the script
                    _refill(container, before, length)
        for one, before in self._values:
            if not _same_values(one, before):
                changed = "a tensor" if isinstance(one, torch.Tensor) else "an array"
                _fill(one, before)
        return changed

    def _take(self, value: Any, depth: int) -> None:
        if isinstance(value, (_PLAIN, _NONE_OF_THEM)) or id(value) in self._seen:
            return
        if len(self._seen) >= _MOST:
            return
        self._seen[id(value)] = value
        if is_generator(value):
            self.generators.append(value)
        elif isinstance(value, torch.Tensor) or _is_array(value):
            self._take_values(value)
        elif isinstance(value, _CONTAINERS):
            self._take_container(value, depth)
        elif isinstance(value, (tuple, frozenset)):
            self._take_all(value, depth)
        else:
            self._take_object(value, depth)

    def _take_object(self, value: Any, depth: int) -> None:
        owner = getattr(value, "__self__", None) if callable(value) else None
        if isinstance(value, MethodType) or is_generator(owner):
            self._take(owner, depth)
        elif isinstance(value, partial):
            self._take_all((value.func, *value.args, *value.keywords.values()), depth)
        elif self._is_own(value) and isinstance(getattr(value, "__dict__", None), dict):
            self._take_container(vars(value), depth)

    def _take_container(self, container: Any, depth: int) -> None:
        length = len(container)
        self._containers.append((container, container.copy() if length <= _MOST_ITEMS else None, length))
        if not isinstance(container, bytearray):
            self._take_all(container.values() if isinstance(container, dict) else container, depth)

    def _take_all(self, values: Iterable[Any], depth: int) -> None:
        if depth:
            for _, each in zip(range(_MOST_LOOKED_INTO), tuple(values), strict=False):
                self._take(each, depth - 1)

    def _take_values(self, value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # of a layout without plain values
            if value.nbytes <= self._room:
                self._room -= value.nbytes
                copied = value.detach().clone() if isinstance(value, torch.Tensor) else value.copy()
                self._values.append((value, copied))


def _same_items(container: Any, before: Any, length: int) -> bool:
    if len(container) != length:
        return False
    if before is None or isinstance(container, (set, bytearray)):
        return before is None or bool(container == before)
    if isinstance(container, dict):
        return all(key in before and _is_one(before[key], value) for key, value in container.items())
    return all(map(_is_one, container, before))


def _is_one(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and isinstance(one, _PLAIN) and bool(one == other))


def _refill(container: Any, before: Any, length: int) -> None:
    if before is not None:
        container.clear()
        (container.update if isinstance(container, (dict, set)) else container.extend)(before)
        return
    while len(container) > length and not isinstance(container, set):
        container.popitem() if isinstance(container, dict) else container.pop()


def _is_array(value: Any) -> bool:
    array = getattr(sys.modules.get("numpy"), "ndarray", ())
    return isinstance(value, array) and value.dtype.kind in "biufcSUmM"


def _same_values(one: Any, before: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.shape == before.shape and one.dtype == before.dtype and same_tensors(one, before)
    return bool(one.shape == before.shape and one.tobytes() == before.tobytes())


def same_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same values; NaN is one, and what has no plain values counts as the same."""
    try:
        if torch.equal(one, other):
            return True
        return one.is_floating_point() and torch.equal(one.isnan(), other.isnan()) and torch.equal(
            one.nan_to_num(), other.nan_to_num()
        )  # fmt: skip
    except RuntimeError:
        return True


def _fill(one: Any, before: Any) -> None:
    if isinstance(one, torch.Tensor):
        one.data = before.clone() if one.shape != before.shape or one.dtype != before.dtype else one.data
        with torch.no_grad():
            one.data.copy_(before)
    elif one.shape == before.shape:
        one[...] = before
