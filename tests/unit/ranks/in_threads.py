"""Ranks as threads of this process: a group whose exchanges meet at a barrier."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from flatout.ranks.group import RankGroup


class _Meeting:
    def __init__(self, size):
        self.barrier = threading.Barrier(size, timeout=20)
        self.there = [None] * size


class ThreadGroup(RankGroup):
    """One rank of `meeting`."""

    def __init__(self, meeting, rank, size):
        super().__init__(None, rank, size)
        self._meeting = meeting

    def _gather(self, own, found):
        self.num_bytes += found.numel()
        found.copy_(torch.cat(self._exchanged(own.clone())))

    def _summed(self, flat):
        flat.copy_(torch.stack(self._exchanged(flat.clone())).sum(0))

    def _exchanged(self, own):
        self._meeting.there[self.rank] = own
        self._meeting.barrier.wait()
        found = list(self._meeting.there)
        self._meeting.barrier.wait()
        return found


def on_ranks(size, act):
    """Return what `act(group)` gives on each rank."""
    meeting = _Meeting(size)

    def run(rank):
        try:
            return act(ThreadGroup(meeting, rank, size))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
    errors = [future.exception() for future in futures if future.exception() is not None]
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [future.result() for future in futures]
