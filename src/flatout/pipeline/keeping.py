"""Rows that are kept, and how missing ones come: as parts of delivered batches, or made by kernels."""

from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.dataset_state import random_states, same, undrawn
from flatout.pipeline.examination import ask, some_indices
from flatout.pipeline.layout import Layout, layout_of
from flatout.pipeline.maker import Maker
from flatout.pipeline.memory import Budget
from flatout.pipeline.store import Store
from flatout.units import format_bytes

__all__ = ["Keeping"]

_MOST_MISSING = 0.1  # of the samples: where fewer are missing, they are made in the training process


class Keeping:
    """The rows of one data set; functions that may refuse return why, an empty string when all is well."""

    def __init__(self, collate: Callable[[Any], Any], budget: Budget, maker: Maker | None = None) -> None:
        """Keep nothing yet. `maker`: makes rows, so that no batch need be delivered first."""
        self._collate = collate
        self._budget = budget
        self._maker = maker
        self._layout: Layout | None = None if maker is None else maker.layout
        self._store: Store | None = None
        self._direct = False  # nothing needs to be kept: the maker reads from memory

    @property
    def makes(self) -> bool:
        """Return whether rows can be made without the data set's own transform."""
        return self._maker is not None

    @property
    def ready(self) -> bool:
        """Return whether batches can be served without a pass of the script's own."""
        store = self._store
        return self.makes or (store is not None and store.num_filled >= (1 - _MOST_MISSING) * store.num_samples)

    @property
    def empty(self) -> bool:
        """Return whether nothing is kept yet."""
        return self._store is None and not self._direct

    @property
    def num_bytes(self) -> int:
        """Return the bytes set aside for rows."""
        return 0 if self._store is None else self._store.num_bytes

    @property
    def num_kept(self) -> int:
        """Return the number of samples that are kept."""
        return 0 if self._store is None else self._store.num_filled

    def missing(self, indices: torch.Tensor) -> torch.Tensor:
        """Return those of `indices` that must be made or delivered before they can be taken."""
        if self._direct:
            return indices[:0]
        return indices if self._store is None else self._store.missing(indices)

    def some_known(self, length: int, number: int) -> list[int]:
        """Return some samples of `length` that can be taken, others each time."""
        if self._direct:
            return some_indices(length, number)
        return [] if self._store is None else self._store.some_filled(number)

    def take(self, indices: torch.Tensor, stream: torch.Generator | None = None) -> Any:
        """Return the batch of samples that are all there; what is random is drawn from `stream`, or torch's own."""
        assert self._layout is not None
        if self._maker is None:
            assert self._store is not None
            return self._layout.build(self._store.take(indices))
        parts = self._maker.parts(indices) if self._store is None else self._store.take(indices)
        return self._maker.finish(parts, stream)

    # -- adding rows --------------------------------------------------------------------------------------------

    def make(self, indices: torch.Tensor) -> str:
        """Make the rows of `indices`."""
        assert self._maker is not None
        if self.empty:
            reason = self._choose_stage(self._maker)
            if reason or self._direct:
                return reason
        assert self._store is not None
        self._store.fill(indices, self._maker.parts(indices))
        return ""

    def add(self, dataset: Any, indices: torch.Tensor, batch: Any) -> str:
        """Keep the rows of a batch that was made of `indices`."""
        if self._maker is not None:
            return ""
        found = layout_of(batch, len(indices))
        if found is None:
            return "its batches hold something that is not one row a sample"
        layout, parts = found
        if self._store is None:
            reason = self._collates_by_row(dataset, indices, parts) or self._open(layout, len(dataset))
            if reason:
                return reason
        assert self._layout is not None
        assert self._store is not None
        if (layout.skeleton, layout.rows) != (self._layout.skeleton, self._layout.rows):
            return "its batches are not all of one shape"
        if len(self._store.missing(indices)):
            self._store.fill(indices, parts)
        return ""

    def repeat(self, indices: torch.Tensor) -> None:
        """Write the rows of `indices` to every place, as trials do."""
        if self._store is not None:
            self._store.repeat(indices)

    def _choose_stage(self, maker: Maker) -> str:
        """Keep the latest stage that fits."""
        number = maker.num_samples
        for stage in reversed(range(maker.num_stages)):
            if stage == 0 and maker.in_memory:
                break
            maker.keep(stage)
            rows = maker.rows()
            if self._budget.fits(number * sum(each.num_bytes for each in rows)):
                self._store = Store(rows, number)
                self._budget.take(self._store.num_bytes, self._store)
                return ""
        maker.keep(0)
        self._direct = maker.in_memory
        return "" if self._direct else f"{number} samples take more than {format_bytes(self._budget.left)}"

    def _open(self, layout: Layout, number: int) -> str:
        wanted = number * layout.num_bytes
        if not self._budget.fits(wanted):
            return (
                f"{number} samples of {format_bytes(layout.num_bytes)} take {format_bytes(wanted)}, "
                f"and {format_bytes(max(0, self._budget.left))} may be taken"
            )
        self._layout, self._store = layout, Store(layout.rows, number)
        self._budget.take(wanted, self._store)
        return ""

    def _collates_by_row(self, dataset: Any, indices: torch.Tensor, parts: list[Any]) -> str:
        """Return why a row may depend on the others of its batch, an empty string when it does not."""
        default = torch.utils.data.dataloader.default_collate
        whole = indices.tolist()
        tried = [whole[:1], whole[-1:] + whole[:1], whole[::-1]] if self._collate is not default else [whole[:1]]
        for some in tried[:1] if len(whole) == 1 else tried:
            samples, before = ask(dataset, some), random_states()
            try:
                made = self._collate(samples)
            except Exception as error:  # a stranger's function on a batch of a size it may never have seen
                return f"its collate function raised {type(error).__name__} on {len(some)} samples"
            found = layout_of(made, len(some))
            places = [whole.index(index) for index in some]
            drew = not undrawn(before, random_states())
            if drew or found is None or not _rows_equal(found[1], parts, places):
                return "a row of its batches depends on the other samples, or changes from call to call"
        return ""


def _rows_equal(made: list[Any], whole: list[Any], places: list[int]) -> bool:
    if len(made) != len(whole):
        return False
    for one, part in zip(made, whole, strict=True):
        wanted = [part[place] for place in places] if isinstance(part, list) else part[places].contiguous()
        if not same(one.contiguous() if isinstance(one, torch.Tensor) else one, wanted):
            return False
    return True
