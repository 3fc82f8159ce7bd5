"""How far a long command has come, told to whoever watches."""

from dataclasses import dataclass

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of a long command; `share` is of the whole command, 0 to 1."""

    stage: str
    steps: int
    share: float
    remaining_s: float | None
    note: str = ""
