"""What a function reads besides its variables: its module, `self`, the variables of functions around it."""

import types
from collections.abc import Sequence
from typing import Any

__all__ = ["MISSING", "Surroundings"]

MISSING = type("Missing", (), {"__doc__": "Stands for a variable without a value."})()


class Surroundings:
    """Fetches what a function reads besides its variables, without running any code of the script's."""

    def __init__(self, function: types.FunctionType, names: Sequence[str]) -> None:
        self._globals = function.__globals__
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._chains = [name.split(".") for name in names]

    def values(self, own: Any) -> list[Any]:
        """Return what the names stand for now; `own` is what `self` is."""
        return [self._value(chain, own) for chain in self._chains]

    def _value(self, chain: Sequence[str], own: Any) -> Any:
        first = chain[0]
        if first == "self":
            value = own
        elif first in self._cells:
            try:
                value = self._cells[first].cell_contents
            except ValueError:
                return MISSING
        else:
            value = self._globals.get(first, MISSING)
            if value is MISSING:
                builtins = self._globals.get("__builtins__", {})
                value = (builtins if isinstance(builtins, dict) else vars(builtins)).get(first, MISSING)
        for name in chain[1:]:
            value = _attribute(value, name)
        return value


def _attribute(value: Any, name: str) -> Any:
    """Return a plain attribute of a module, or of an object whose class does nothing when it is read."""
    if isinstance(value, types.ModuleType):
        return vars(value).get(name, MISSING)
    kind = type(value)
    if _reads(kind) is not _reads(object) or not hasattr(value, "__dict__"):
        return MISSING
    for each in kind.__mro__:
        if name in vars(each):
            found = vars(each)[name]
            return MISSING if hasattr(type(found), "__get__") or name in value.__dict__ else found
    return value.__dict__.get(name, MISSING)


def _reads(kind: type) -> Any:
    """Return what reads an attribute of an object of a class."""
    return kind.__getattribute__
