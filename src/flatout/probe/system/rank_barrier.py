"""When a rank whose recording is complete may end: once the others' are, too.

Ranks that exchange gradients do not outlive each other. Each decides by its own clock that it has seen enough, so one
would end a step or two before another, and take it down with half a recording. It trains on, unrecorded, until then.
"""

import contextlib
import time
from pathlib import Path

from flatout.pipeline.cache.ranks import local_ranks

__all__ = ["RankBarrier"]

_LONGEST_S = 5.0


class RankBarrier:
    """The end of the recording of one rank, told to the others of this machine."""

    def __init__(self, folder: Path, name: str, rank: int) -> None:
        """Tell that `rank` is complete, in a file of `folder` that begins with `name`."""
        self._told = folder / name
        self._number = local_ranks()
        self._since = time.monotonic()
        if self._number > 1:
            with contextlib.suppress(OSError):
                self._told.with_name(f"{name}-{rank}").touch()

    def may(self) -> bool:
        """Return whether every rank is complete, or has been waited for long enough."""
        if self._number < 2 or time.monotonic() - self._since > _LONGEST_S:
            return True
        try:
            return sum(1 for _ in self._told.parent.glob(f"{self._told.name}-*")) >= self._number
        except OSError:
            return True
