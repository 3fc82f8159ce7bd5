"""Samples that mostly wait, and are not kept: many are asked for at a time, ahead of their batch."""

from typing import Any

import torch

from flatout.pipeline.cache.numpy_collate import quicker
from flatout.pipeline.read.prefetch import Prefetch
from flatout.pipeline.serve.kept_rows import KeptRows
from flatout.torch_loader.sampler_order import Indices, OddIndices
from flatout.torch_loader.worker_start import computing_on
from flatout.watch.main_thread import off_main_thread

__all__ = ["Prefetched"]


class Prefetched(KeptRows):
    """Keeps nothing; collates what threads have asked the data set for."""

    def _wanted(self, indices: Indices) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int64) if isinstance(indices, OddIndices) else indices

    def make(self, indices: Indices, stream: torch.Generator | None, *, prefetch: Prefetch | None = None) -> Any:
        """Return the batch of `indices`, collated by the script's own function."""
        if self.successor is not None:
            return self.successor.make(indices, stream)
        odd = isinstance(indices, OddIndices) or not len(indices)
        if prefetch is None or odd or off_main_thread() or not self.stands():
            return self._served.as_plain(indices, stream)
        self._served.policy.hit()
        with computing_on(self._served.computing_on):
            return quicker(self._served.collate)(prefetch.take(indices.tolist()))
