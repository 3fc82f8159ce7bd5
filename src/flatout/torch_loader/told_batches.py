"""An iterator of the script's own that tells of its batches: what they were made of, and what speaks against them."""

import copy
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import torch

from flatout.torch_loader.noted_batches import CheckedCollate, Flagged, NotedSampler
from flatout.torch_loader.sampler_order import OddIndices, indices_of
from flatout.watch.dataset_state import random_states, undrawn
from flatout.watch.main_thread import off_main_thread

__all__ = ["Deliver", "RowCheck", "noted", "tell", "weakly_called"]

Deliver = Callable[[torch.Tensor, Any, bool, str], None]
"""What is told: the indices of a batch, the batch, whether random numbers were drawn for it, and what else speaks
against keeping it, "" for nothing."""


class RowCheck(Protocol):
    """A collate function that says in `against` what speaks against keeping what it gave last, "" for nothing."""

    against: str

    def __call__(self, samples: Any) -> Any:
        """Return the batch of `samples`."""


MakeCheck = Callable[[Callable[[Any], Any]], RowCheck]
"""From the script's collate function, one that checks what it gives."""


def noted(loader: Any, check: MakeCheck) -> Any:
    """Return a loader that does what `loader`, which has workers, does, and notes each batch's indices and draws."""
    twin = copy.copy(loader)
    collate = _RowsChecked(loader.collate_fn, loader.worker_init_fn, check)
    vars(twin).update(  # past DataLoader.__setattr__, which locks some of these
        batch_sampler=NotedSampler(loader.batch_sampler),
        collate_fn=collate,
        worker_init_fn=collate.begin,
        _iterator=None,
    )
    return twin


class _RowsChecked(CheckedCollate):
    """Looks whether rows depend on each other, too."""

    def __init__(self, collate: Callable[..., Any], init: Callable[[int], Any] | None, check: MakeCheck) -> None:
        super().__init__(collate, init)
        self._collate = self._by_row = check(collate)

    def __call__(self, samples: Any) -> Flagged:
        flagged = super().__call__(samples)
        return flagged._replace(against=self._by_row.against or flagged.against)


class _TellingFetcher:
    """What makes the batches of a single-process iterator, told to `deliver`."""

    def __init__(self, fetcher: Any, deliver: Deliver, check: MakeCheck, stands: Callable[[], bool]) -> None:
        """Take the iterator's own; `stands()` is asked before each batch."""
        self._stands = stands
        self._fetcher, self._theirs = fetcher, fetcher.collate_fn
        self._collate = fetcher.collate_fn = check(fetcher.collate_fn)
        self._deliver = deliver

    def fetch(self, indices: Any) -> Any:
        """Return the batch of `indices`."""
        if off_main_thread():
            self._fetcher.collate_fn = self._theirs
            return self._fetcher.fetch(indices)
        stands, before = self._stands(), random_states()
        data = self._fetcher.fetch(indices)
        drew = not undrawn(before, random_states())
        places = indices_of(indices)
        if stands and not isinstance(places, OddIndices):
            self._deliver(places, data, drew, self._collate.against)
        return data


class _TellingWorkers:
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
            places = indices_of(self._pending.popleft())
            if not isinstance(places, OddIndices):
                self._deliver(places, flagged.batch, flagged.drew, flagged.against)
        self._whole = whole
        return flagged.batch


def weakly_called(method: "weakref.WeakMethod[Deliver]") -> Deliver:
    """Return a function that calls `method` while its object lives."""

    def call(indices: torch.Tensor, batch: Any, drew: bool, against: str) -> None:
        alive = method()
        if alive is not None:
            alive(indices, batch, drew, against)

    return call


def tell(iterator: Any, twin: Any, deliver: Deliver, check: MakeCheck, stands: Callable[[], bool]) -> Any:
    """Let `iterator` tell of its batches, and return it; `twin` is the `noted` loader of one with workers.

    `check` makes what looks at the rows of one without workers; `stands()` is asked before each of its batches.
    """
    if twin is None:
        iterator._dataset_fetcher = _TellingFetcher(iterator._dataset_fetcher, deliver, check, stands)
    else:
        iterator._next_data = _TellingWorkers(iterator, twin, deliver).next_data
    return iterator
