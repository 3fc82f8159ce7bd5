"""A switch in shared memory that processes forked later follow, with a count of what they did."""

import mmap
import os

__all__ = ["SharedSwitch"]

_SLOTS = 61  # processes count in their own, most of the time


class SharedSwitch:
    """Switched where it was made; read, and counted in, by every process that is forked from there.

    A process that is started anew (`spawn`, `forkserver`) knows nothing of it.
    """

    def __init__(self) -> None:
        """Share the switch, which is off."""
        self._cells = memoryview(mmap.mmap(-1, 4 * (1 + _SLOTS))).cast("I")
        self._here = os.getpid()

    @property
    def elsewhere(self) -> bool:
        """Whether this process was forked since."""
        return os.getpid() != self._here

    @property
    def on(self) -> bool:
        """Whether it is switched on."""
        return bool(self._cells[0])

    @on.setter
    def on(self, on: bool) -> None:
        self._cells[0] = int(on)

    def hit(self) -> None:
        """Count that this process has acted; of two that share a slot, and count at once, one may be lost."""
        slot = 1 + os.getpid() % _SLOTS
        self._cells[slot] = (self._cells[slot] + 1) % 2**32

    def hits(self) -> int:
        """Return how often they have acted."""
        return sum(self._cells[1:])
