"""Defaults of a function that others stand in for: those that the script sets on one of them are those of all."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

__all__ = ["SharedDefaults"]


class SharedDefaults:
    """The values that `__defaults__` and `__kwdefaults__` have, of a function and of what stands in its place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Nothing stands in its place yet; of what is no function of Python's nothing is shared."""
        self._function = function if isinstance(function, FunctionType) else None
        self._known: tuple[Any, Any] = (None, None)
        self._every: tuple[FunctionType, ...] = ()

    def add(self, stand_in: FunctionType) -> None:
        """Have another function show them."""
        if self._function is not None:
            self._known = self._function.__defaults__, self._function.__kwdefaults__
            stand_in.__defaults__, stand_in.__kwdefaults__ = self._known
            self._every = (*(self._every or (self._function,)), stand_in)

    def share(self) -> None:
        """Give all of them what was set on one of them."""
        for one in self._every:
            now = one.__defaults__, one.__kwdefaults__
            if now[0] is not self._known[0] or now[1] is not self._known[1]:
                self._known = now
                for other in self._every:
                    other.__defaults__, other.__kwdefaults__ = now
                return
