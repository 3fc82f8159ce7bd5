"""How much memory there is for keeping samples, who has taken how much of it, and memory of several processes."""

import mmap
import os
import weakref

import torch

from flatout.machine import group_memory_left
from flatout.pipeline.cache.ranks import local_ranks

__all__ = ["MemoryBudget", "available_bytes", "memory_of_workers"]

_SHARE = 0.4
"""Of what is free at the start. The training's own growth, workers and the page cache need the rest."""


def available_bytes() -> int:
    """Return the bytes this process may still take: free memory, a control group's limit, and the address space's."""
    import resource

    import psutil

    free = [int(psutil.virtual_memory().available)]
    if (left := group_memory_left()) is not None:
        free.append(left)
    used = psutil.Process(os.getpid()).memory_info()
    data = getattr(used, "data", used.rss)  # untouched memory counts, too, of which CUDA builds of torch have a lot
    for limit, taken in ((resource.RLIMIT_AS, used.vms), (resource.RLIMIT_DATA, data)):
        soft = resource.getrlimit(limit)[0]
        if soft != resource.RLIM_INFINITY:
            free.append(soft - taken)
    return max(0, min(free))


class MemoryBudget:
    """Bytes that all stores of a process may take together."""

    def __init__(self, limit: int | None = None) -> None:
        """Take `limit` bytes at most; None: a share of what is free when first asked."""
        self._limit = limit
        self._taken = 0

    @property
    def left(self) -> int:
        """Return the bytes that are left."""
        if self._limit is None:  # the ranks of this machine have it together
            self._limit = int(_SHARE * available_bytes() / local_ranks())
        return self._limit - self._taken

    def fits(self, num_bytes: int) -> bool:
        """Return whether `num_bytes` more may be taken."""
        return num_bytes <= self.left

    def take(self, num_bytes: int, owner: object) -> bool:
        """Return whether `num_bytes` fit; they come back when `owner` ends."""
        if num_bytes > self.left:
            return False
        self._taken += num_bytes
        weakref.finalize(owner, self._give_back, num_bytes)
        return True

    def _give_back(self, num_bytes: int) -> None:
        self._taken -= num_bytes


def memory_of_workers(num_bytes: int) -> torch.Tensor | None:
    """Return memory that this process and those that it forks have in common; None where there is none."""
    try:
        return torch.frombuffer(mmap.mmap(-1, num_bytes), dtype=torch.uint8)
    except (OSError, ValueError):
        return None
