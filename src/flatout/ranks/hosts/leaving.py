"""The end of a rank whose training cannot go on, since another machine has failed: not before it waits for others.

What it is at until then, a checkpoint that it writes, is brought to its end.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from flatout.schema.ranks import LEAVE_FILE

__all__ = ["RankLeaving"]

_LOOK_S = 0.3
_WAITS_S = 0.05
_LEFT = 1  # exit code


class RankLeaving:
    """A thread of this rank that looks for the launcher's word. Children of the process have no such thread."""

    def __init__(self, folder: str) -> None:
        """Begin to look. Until it has joined the others, this rank waits for them."""
        self._told = Path(folder, LEAVE_FILE)
        self._waits: Callable[[], bool] = lambda: True
        self._own: Callable[[], bool] = lambda: False
        self._leave: Callable[[], object] = lambda: os._exit(_LEFT)
        threading.Thread(target=self._follow, daemon=True, name="flatout-leaving").start()

    def joined(self, waits: Callable[[], bool], own: Callable[[], bool], leave: Callable[[], object]) -> None:
        """Take whether this rank waits; whether the script distributes itself, so that nobody knows; how it ends."""
        self._waits, self._own, self._leave = waits, own, leave

    def _follow(self) -> None:
        while not self._told.exists():
            time.sleep(_LOOK_S)
        while not self._waits():
            if self._own():
                os.kill(os.getpid(), signal.SIGTERM)
                return
            time.sleep(_WAITS_S)
        self._leave()
