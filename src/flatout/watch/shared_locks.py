"""Locks that a process shares with its copies: one that is ended while it has such a lock keeps it for ever."""

import sys
import threading
from typing import Any

__all__ = ["take_own_locks"]


def take_own_locks() -> None:
    """Give this process, a copy, locks of its own where packages share theirs: progress bars of `tqdm`.

    What the copy prints is not printed, so nobody has to wait for it.
    """
    bars: Any = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    if bars is None:
        return
    lock, kinds = threading.RLock(), [bars]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind is bars or "_lock" in vars(kind):
            kind.set_lock(lock)
