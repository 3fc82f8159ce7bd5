"""The two kinds of pass over a loader: one keeps what the script's own iterator makes, one needs it no more."""

import copy
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter, _SingleProcessDataLoaderIter

from flatout.pipeline.compile.intra_op_threads import IntraOpThreads
from flatout.pipeline.inspect.row_independence import DRAWS, RowIndependence
from flatout.pipeline.serve.batch_buffer import BatchBuffer
from flatout.torch_loader.noted_batches import CheckedCollate, Flagged, NotedSampler
from flatout.torch_loader.sampler_order import DrawnAhead, InOneDraw, OddIndices, batches_of, indices_of, may_draw_ahead
from flatout.torch_loader.worker_streams import WorkerStreams
from flatout.watch.dataset_state import random_states, undrawn

__all__ = ["Deliver", "KeptPass", "fill", "noted", "weakly_called"]

_PLAIN_NEXT = _BaseDataLoaderIter.__next__

Deliver = Callable[[torch.Tensor, Any, str], None]
"""What a filling pass tells: the indices of a batch, the batch, and what speaks against keeping it, "" for nothing."""


def noted(loader: Any) -> Any:
    """Return a loader that does what `loader`, which has workers, does, and notes each batch's indices and draws."""
    twin = copy.copy(loader)
    collate = _RowsChecked(loader.collate_fn, loader.worker_init_fn)
    vars(twin).update(  # past DataLoader.__setattr__, which locks some of these
        batch_sampler=NotedSampler(loader.batch_sampler),
        collate_fn=collate,
        worker_init_fn=collate.begin,
        _iterator=None,
    )
    return twin


class _RowsChecked(CheckedCollate):
    """Looks whether rows depend on each other, too."""

    def __init__(self, collate: Callable[..., Any], init: Callable[[int], Any] | None) -> None:
        super().__init__(collate, init)
        self._collate = self._by_row = RowIndependence(collate)

    def __call__(self, samples: Any) -> Flagged:
        flagged = super().__call__(samples)
        return flagged._replace(against=self._by_row.against or flagged.against)


class _FillingFetcher:
    """What makes the batches of a single-process iterator, told to `deliver`."""

    def __init__(self, fetcher: Any, deliver: Deliver, stands: Callable[[], bool]) -> None:
        """Take the iterator's own; `stands()` is asked before each batch."""
        self._stands = stands
        self._fetcher = fetcher
        self._collate = fetcher.collate_fn = RowIndependence(fetcher.collate_fn)
        self._deliver = deliver

    def fetch(self, indices: Any) -> Any:
        """Return the batch of `indices`."""
        stands, before = self._stands(), random_states()
        data = self._fetcher.fetch(indices)
        drew = not undrawn(before, random_states())
        places = indices_of(indices)
        if stands and not isinstance(places, OddIndices):
            self._deliver(places, data, DRAWS if drew else self._collate.against)
        return data


class _FillingWorkers:
    """Where an iterator with workers over a `noted` loader gets its batches from: itself, told to `deliver`."""

    def __init__(self, iterator: Any, twin: Any, deliver: Deliver) -> None:
        """Follow `iterator`; it must not be held, because workers end with it."""
        self._iterator = weakref.ref(iterator)
        self._next: Callable[[Any], Any] = type(iterator)._next_data
        self._pending = twin.batch_sampler.pending
        self._deliver = deliver
        self._whole = True  # all batches of the pass came so far

    def next_data(self) -> Any:
        """Return the next batch, as the iterator's own method of that name does."""
        whole, self._whole = self._whole, False  # whatever is raised: the script may go on, and batches come otherwise
        flagged: Flagged = self._next(self._iterator())
        if whole:
            against = DRAWS if flagged.drew else flagged.against
            places = indices_of(self._pending.popleft())
            if not isinstance(places, OddIndices):
                self._deliver(places, flagged.batch, against)
        self._whole = whole
        return flagged.batch


def weakly_called(method: "weakref.WeakMethod[Deliver]") -> Deliver:
    """Return a function that calls `method` while its object lives."""

    def call(indices: torch.Tensor, batch: Any, against: str) -> None:
        alive = method()
        if alive is not None:
            alive(indices, batch, against)

    return call


def fill(iterator: Any, twin: Any, deliver: Deliver, stands: Callable[[], bool] = lambda: True) -> Any:
    """Let `iterator` tell of its batches, and return it; `twin` is the `noted` loader of one with workers.

    `stands()` is asked before each batch of one without.
    """
    if twin is None:
        iterator._dataset_fetcher = _FillingFetcher(iterator._dataset_fetcher, deliver, stands)
    else:
        iterator._next_data = _FillingWorkers(iterator, twin, deliver).next_data
    return iterator


Make = Callable[[torch.Tensor, torch.Generator | None], Any]
"""From the indices of a batch, and the stream that it is drawn from, the batch."""


class KeptPass(_SingleProcessDataLoaderIter):
    """One pass whose batches are gathered from what is kept.

    It draws from the random streams what the script's own iterator would: the seed for workers where one would be
    drawn, and the sampler's own, as early as the loader would draw them.
    """

    def __init__(
        self,
        loader: Any,
        make: Make,
        *,
        seeded_before: bool,
        intra_op: IntraOpThreads,
        earlier: WorkerStreams | None = None,
        follow: Callable[[Iterator[torch.Tensor], bool], Iterator[torch.Tensor]] | None = None,
        ready: Callable[[InOneDraw | DrawnAhead, int], BatchBuffer] | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Walk `loader`; `seeded_before`: its workers stay, and drew their seed in a pass with `earlier` streams.

        Batches are computed as `intra_op` finds to be fastest; it stays from pass to pass.
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
        self._ready: BatchBuffer | None = None
        order = batches_of(self._index_sampler, self._sampler_iter, ahead, len(loader.dataset))
        self._indices: Iterator[torch.Tensor] = order
        if follow is not None:
            self._indices = follow(self._indices, may_draw_ahead(self._index_sampler))
        elif ready is not None and isinstance(order, InOneDraw | DrawnAhead) and may_draw_ahead(self._index_sampler):
            self._indices = self._ready = ready(order, self._index_sampler.batch_size)
        self._make, self._intra_op, self._resident, self._ended = make, intra_op, False, ended
        self.latest: Any = None  # indices of the batch that was made last by itself
        self._num_workers = loader.num_workers
        self.streams = WorkerStreams(int(self._base_seed), loader.num_workers, earlier)

    def leave_to_device(self, resident: bool) -> None:
        """Give batches as they are made, whatever the loader says of pinned memory; `resident`: a device makes them."""
        self._pin_memory, self._resident = False, resident

    def _next_data(self) -> Any:
        if self._ready is None and not (self._num_workers or self._pin_memory or self._resident):
            self.latest = indices = next(self._indices)
            return self._intra_op.run(self._make, indices, None)
        stream, data = self.streams.next(), None if self._ready is None else self._ready.batch()
        if data is None:
            self.latest = indices = next(self._indices)
            if self._resident:
                return self._make(indices, stream)
            data = self._intra_op.run(self._make, indices, stream)
        return pin_memory(data, self._pin_memory_device) if self._pin_memory else data

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
