"""Samples and batches as torch makes them in the script's own process, one after the other."""

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["SampleMaker"]


class SampleMaker:
    """Makes what one iterator without workers gives.

    Attributes:
        whole: returns the batch of an index, as torch does.
        copies: batches have nothing of the samples in them but values.
    """

    def __init__(self, fetcher: Any) -> None:
        """Take torch's own fetcher of a map-style data set, read through at every batch."""
        self._fetcher = fetcher
        self.whole = fetcher.fetch
        self.copies = fetcher.collate_fn is torch.utils.data.default_collate

    @property
    def dataset(self) -> Any:
        """The data set."""
        return self._fetcher.dataset

    @staticmethod
    def count(index: Any) -> int:
        """Return how many samples a batch has, 0 where its sampler does not give a list."""
        return len(index) if type(index) in (list, tuple) else 0

    def samples(self, indices: Sequence[Any]) -> Any:
        """Return the samples of some indices, made in their order."""
        dataset = self._fetcher.dataset
        if getattr(dataset, "__getitems__", None):
            return dataset.__getitems__(indices)
        return [dataset[index] for index in indices]

    def batch(self, samples: Any) -> Any:
        """Return the batch of all samples."""
        return self._fetcher.collate_fn(samples)
