"""A pass of torch's own iterator class whose batches come from elsewhere."""

import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter, _SingleProcessDataLoaderIter

from flatout.torch_loader.sampler_order import DrawnAhead, InOneDraw, batches_of, may_draw_ahead
from flatout.torch_loader.worker_streams import WorkerStreams

__all__ = ["ReadyBatches", "ServedPass"]

_PLAIN_NEXT = _BaseDataLoaderIter.__next__

Make = Callable[[torch.Tensor, torch.Generator | None], Any]
"""From the indices of a batch, and the stream that it is drawn from, the batch."""


class ReadyBatches(Protocol):
    """Batches that are made before they are asked for; of all others it yields the indices."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Return itself."""

    def __next__(self) -> torch.Tensor:
        """Return the indices of the next batch, which is to be made by itself."""

    def batch(self) -> Any:
        """Return the next batch, None where it is to be made by itself."""


class ServedPass(_SingleProcessDataLoaderIter):
    """One pass whose batches `make` gives.

    It draws from the random streams what the script's own iterator would: the seed for workers where one would be
    drawn, and the sampler's own, as early as the loader would draw them.

    Attributes:
        latest: the indices of the batch that was made last by itself.
        streams: the random streams of workers, which stay where these do.
    """

    def __init__(
        self,
        loader: Any,
        make: Make,
        *,
        seeded_before: bool,
        compute: Callable[..., Any] | None = None,
        earlier: WorkerStreams | None = None,
        follow: Callable[[Iterator[torch.Tensor], bool], Iterator[torch.Tensor]] | None = None,
        ready: Callable[[InOneDraw | DrawnAhead, int], ReadyBatches] | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Walk `loader`; `seeded_before`: its workers stay, and drew their seed in a pass with `earlier` streams.

        `compute(make, indices, stream)` calls `make`, on as many threads as it finds best.
        `follow(indices, ahead)` yields the same indices; `ahead`: it may take them long before they are asked for.
        `ready(indices, size)` has some batches of that size before they are asked for; `ended()` is told of the end.
        """
        alone = copy.copy(loader)
        vars(alone).update(num_workers=0, prefetch_factor=None, persistent_workers=False, timeout=0, _iterator=None)
        if seeded_before:
            vars(alone).update(generator=torch.Generator())  # the script's own is not drawn from again
        super().__init__(alone)
        if seeded_before and loader._iterator is not None:
            self._base_seed = loader._iterator._base_seed
        if loader.num_workers and not seeded_before:  # torch asks twice where workers begin, and once where they stay
            self._sampler_iter = iter(self._index_sampler)
        ahead = loader.num_workers * (loader.prefetch_factor or 0)
        order = batches_of(self._index_sampler, self._sampler_iter, ahead, len(loader.dataset))
        self._ready: ReadyBatches | None = None
        self._indices: Iterator[torch.Tensor] = order
        if follow is not None:
            self._indices = follow(self._indices, self.may_draw_ahead)
        elif ready is not None and isinstance(order, InOneDraw | DrawnAhead) and self.may_draw_ahead:
            self._indices = self._ready = ready(order, self._index_sampler.batch_size)
        self._make, self._ended = make, ended
        self._batch: Make = make if compute is None else functools.partial(compute, make)
        self.latest: Any = None
        self.streams = WorkerStreams(int(self._base_seed), loader.num_workers, earlier)

    @property
    def may_draw_ahead(self) -> bool:
        """Return whether indices may be drawn long before their batch."""
        return may_draw_ahead(self._index_sampler)

    def leave_to_device(self, resident: bool) -> None:
        """Give batches as they are made, whatever the loader says of pinned memory; `resident`: a device makes them."""
        self._pin_memory = False
        if resident:
            self._batch = self._make

    def give_by(self, give: Callable[[], Any]) -> None:
        """Let `give` be asked for each batch; it may ask `next_batch`."""
        self._next_data = give  # type: ignore[method-assign]

    def next_batch(self) -> Any:
        """Return the next batch as it is made here."""
        if self._ready is None and not (self.streams.num_workers or self._pin_memory):
            self.latest = indices = next(self._indices)
            return self._batch(indices, None)
        stream, data = self.streams.next(), None if self._ready is None else self._ready.batch()
        if data is None:
            self.latest = indices = next(self._indices)
            data = self._batch(indices, stream)
        return pin_memory(data, self._pin_memory_device) if self._pin_memory else data

    _next_data = next_batch

    def __next__(self) -> Any:
        try:
            if _BaseDataLoaderIter.__next__ is not _PLAIN_NEXT:  # somebody watches loaders: be seen
                return super().__next__()
            data = self._next_data()
        except StopIteration:
            self._ended()
            raise
        self._num_yielded += 1
        return data
