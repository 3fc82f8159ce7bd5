"""Switching fixes in every rank of a training: rank 0 alternates and times, the others follow.

Ranks that exchange gradients end their steps together, so rank 0's blocks hold for all of them. A rank that learns of
a switch one step late has still switched before the block begins: the steps after a switch are left out.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from flatout.fixes.core.site import Site
from flatout.fixes.trial.alternation import Alternation, turn
from flatout.schema.order import TimingOrder
from flatout.schema.run import Step

__all__ = ["FollowingRank", "LeadingRank"]

_NOTHING = (-1, False)
_SWITCH = "switch"


class LeadingRank:
    """Rank 0: an alternation that tells the others, in a file, which arm it is at and whether that is on."""

    def __init__(self, alternation: Alternation, folder: Path) -> None:
        """Take what decides and where it is told."""
        self._alternation = alternation
        self._switch = folder / _SWITCH
        self._told = _NOTHING

    def step(self, step: Step) -> bool:
        """Take one finished step; return True when every arm is decided."""
        over = self._alternation.step(step)
        state = (self._alternation.arm, self._alternation.on)
        if state != self._told:
            self._told = state
            with self._switch.open("a", encoding="ascii") as file:  # longer each time: what others look for
                file.write(f"{state[0]} {int(state[1])}\n")
        return over


class FollowingRank:
    """Another rank: at the end of each step it switches as rank 0 has done."""

    def __init__(self, timing: TimingOrder, arms: Sequence[Sequence[Site]]) -> None:
        """Take the fixes of each arm, switched off, or on in the base where arms are left out of it."""
        self._switch = Path(timing.turns) / _SWITCH
        self._without = timing.without
        self._arms = arms
        self._state = _NOTHING
        self._size = 0

    def step(self, step: Step) -> bool:
        """Take one finished step; return True when rank 0 is through with every arm."""
        with contextlib.suppress(OSError, ValueError):
            size = os.stat(self._switch).st_size  # 2 us; reading the file each time takes ten
            if size > self._size:
                arm, on = self._switch.read_bytes()[:size].splitlines()[-1].split()
                self._go_to(int(arm), on == b"1")
                self._size = size
        return self._state[0] >= len(self._arms)

    def _go_to(self, arm: int, on: bool) -> None:
        if self._state[0] != arm:
            self._turn(*self._state[:1], False)
        self._turn(arm, on)
        self._state = (arm, on)

    def _turn(self, arm: int, on: bool) -> None:
        if 0 <= arm < len(self._arms):
            turn(self._arms[arm], on, without=self._without)
