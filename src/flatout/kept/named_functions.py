"""Functions of the user's by the file that they stand in and their qualified name, wherever a module has them."""

import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from flatout.probe.core.user_places import is_user_file

__all__ = ["FunctionSearch", "homes_of"]

_MOST_WRAPPED = 8
_LOOKED = 24  # times that functions are looked for while a training runs


class FunctionSearch:
    """Puts something in place of functions once modules have them, under each name that a module has for them."""

    def __init__(self, names: list[str], stand_in: Callable[[str, str], None]) -> None:
        """Look for functions, as in `file.py:Class.function`; `stand_in(home, name)` is told of each home once."""
        self._names, self._stand_in = names, stand_in
        self._homes: set[str] = set()
        self._looked = 0

    def look(self) -> None:
        """Look in the modules that are loaded by now."""
        for name in self._names:
            for home in homes_of(name):
                if home not in self._homes:
                    self._homes.add(home)
                    self._stand_in(home, name)

    def before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `original` with a look before each of its first calls."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._looked < _LOOKED:
                self._looked += 1
                self.look()
            return original(*args, **kwargs)

        return call


def homes_of(name: str) -> Iterator[str]:
    """Yield the dotted names under which loaded modules of the user's have `name`, as in `file.py:Class.function`."""
    file, _, function = name.partition(":")
    *parents, last = function.split(".")
    found: list[Any] = []
    modules = [(key, module) for key, module in list(sys.modules.items()) if _is_the_users(module)]
    for key, module in modules:
        owner: Any = module
        for parent in parents:
            owner = vars(owner).get(parent) if owner is not None else None
            owner = owner if isinstance(owner, type) else None
        value = vars(owner).get(last) if owner is not None else None
        value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(value, FunctionType) and not _is_ours(value) and _leads_to(value, file, function):
            found.append(value)
            yield f"{key}:{function}"
    if parents:
        return
    for key, module in modules:
        for alias, value in list(vars(module).items()):
            if alias != last and isinstance(value, FunctionType) and any(value is one for one in found):
                yield f"{key}:{alias}"


def _is_the_users(module: Any) -> bool:
    file = getattr(module, "__dict__", {}).get("__file__")
    return isinstance(file, str) and is_user_file(file)


def _is_ours(value: FunctionType) -> bool:
    return str(value.__globals__.get("__name__", "")).partition(".")[0] == "flatout"


def _leads_to(value: Callable[..., Any], file: str, function: str) -> bool:
    """Return whether a function, or what a decorator has put around it, is the one of that file and name."""
    for _ in range(_MOST_WRAPPED):
        code = getattr(value, "__code__", None)
        if isinstance(code, CodeType) and code.co_qualname == function and os.path.basename(code.co_filename) == file:
            return is_user_file(code.co_filename)
        inner = getattr(value, "__dict__", {}).get("__wrapped__")
        if inner is None:
            return False
        value = inner
    return False
