"""The rows that this rank computes at this moment, inside a cut call; what depends on the whole batch asks here."""

import os
import threading
from dataclasses import dataclass, field
from typing import Any

__all__ = ["HERE", "OwnRows", "RankPlace"]


@dataclass(frozen=True, slots=True)
class OwnRows:
    """This rank's rows of a batch of `total`, along dimension `dim` of what is cut."""

    total: int
    first: int
    number: int
    dim: int
    shares: tuple[int, ...]  # of all ranks
    draws: dict[Any, bool] = field(default_factory=dict, compare=False)  # `RowPlan.draws` of the call


class RankPlace:
    """Where this process is: outside of modules, in a call that is cut, or in one that is left whole."""

    __slots__ = ("asked", "backward", "main", "pid", "rows", "sharding", "whole")

    def __init__(self) -> None:
        """Be outside."""
        self.rows: OwnRows | None = None  # of the cut call that runs, or whose backward pass does
        self.whole = False  # inside a call that is left whole, its parts too
        self.asked = 0  # how often something was done for the whole batch inside of cut calls
        self.backward = 0  # passes that run, one inside the other
        self.main = threading.get_ident()
        self.pid = os.getpid()
        self.sharding: Any = None  # what to do with parameters of which ranks keep shares, if there are any

    @property
    def inside(self) -> bool:
        """Whether calls of modules are parts of one that was cut or left whole."""
        return self.rows is not None or self.whole

    def own(self) -> OwnRows | None:
        """Return the rows of this rank where the calling thread computes them, or does so in a backward pass."""
        rows = self.rows
        if rows is None or threading.get_ident() == self.main:
            return rows
        engine = self.backward and isinstance(threading.current_thread(), threading._DummyThread)
        return rows if engine else None


HERE = RankPlace()
"""Of this process; a forked worker is told by `pid`."""
