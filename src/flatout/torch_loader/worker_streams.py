"""The random streams that samples are drawn from: the process's own, or one for each worker that the script asked for.

A worker's stream is seeded as torch seeds it, from the seed that the loader draws for a pass and the worker's number
(`torch.utils.data._utils.worker._worker_loop`), and batches go to the workers in turn. So a pass without workers draws
what the workers would have drawn.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["WorkerStreams", "drawn_from"]


class WorkerStreams:
    """The streams of one pass; workers that stay go on with theirs in the next one."""

    def __init__(self, base_seed: int, num_workers: int, earlier: "WorkerStreams | None" = None) -> None:
        """Seed one stream a worker; `earlier`: those of the pass before, of workers that stay."""
        self._of_workers = [torch.Generator().manual_seed(base_seed + worker) for worker in range(num_workers)]
        if earlier is not None:
            self._of_workers = earlier._of_workers
        self.num_workers, self._number = num_workers, 0

    def next(self) -> torch.Generator | None:
        """Return the stream of the next batch, None for the process's own."""
        if not self._of_workers:
            return None
        self._number += 1
        return self._of_workers[(self._number - 1) % len(self._of_workers)]


@contextlib.contextmanager
def drawn_from(stream: Any) -> Iterator[None]:
    """Let torch's global stream go on from where `stream` stands, and `stream` from where that gets; None: nothing."""
    if stream is None:
        yield
        return
    own = torch.random.get_rng_state()
    begun = False
    try:
        torch.random.set_rng_state(stream.get_state())
        begun = True
        yield
    finally:
        if begun:
            stream.set_state(torch.random.get_rng_state())
        torch.random.set_rng_state(own)
