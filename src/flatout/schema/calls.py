"""Calls of a user's functions that a deep run has compared with each other."""

from dataclasses import dataclass

from flatout.schema.facts import Frame

__all__ = ["RepeatedCall", "UnchangingCall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangingCall:
    """Calls of a user's function, from one line, that were given the same and returned the same in several steps."""

    place: Frame
    function: str = ""
    file: str = ""  # that the function stands in
    calls: int = 0  # in a step
    steps: int = 0  # that were compared
    numbers: int = 0  # that it returns


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedCall:
    """Calls of a user's function in one step, some of which were given what an earlier one was given."""

    places: tuple[Frame, ...] = ()  # that call it, the one that does so most first
    function: str = ""
    file: str = ""  # that the function stands in
    calls: int = 0  # in a step
    again: int = 0  # of them, those that returned what an earlier one did
    numbers: int = 0  # that it returns
