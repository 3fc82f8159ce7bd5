"""Rows that are kept, and how missing ones come: as parts of delivered batches, or made by kernels."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flatout.pipeline.cache.batch_layout import Layout, Rows, layout_of, unknown_class
from flatout.pipeline.cache.cache_stage import worth_keeping
from flatout.pipeline.cache.gather import Gather, gathering, gathering_of_arrays
from flatout.pipeline.cache.memory_budget import MemoryBudget, memory_of_workers
from flatout.pipeline.cache.rank_sharing import shared_store
from flatout.pipeline.cache.row_store import RowStore, mapped_bytes
from flatout.pipeline.compile.batch_compiler import BatchCompiler
from flatout.pipeline.inspect.determinism import ask, some_indices
from flatout.pipeline.inspect.row_independence import DEPENDS, DRAWS, rows_equal
from flatout.pipeline.read.worker_reader import Given
from flatout.units import format_bytes
from flatout.watch.batch_owners import stands_twice
from flatout.watch.dataset_state import random_states, restore_random_states, undrawn
from flatout.watch.refused_writes import in_words
from flatout.watch.script_signals import any_but_signals
from flatout.watch.state_guard import StateGuard

__all__ = ["Room", "RowCache", "no_room", "rows_refused"]

Room = Callable[[int], torch.Tensor | None]

_AT_ONCE_BYTES = 512 * 1024**2  # made before the first batch: 0.2 s at the 3 GB/s that fresh memory takes
_SOME = 1024
_FEW = 4


def no_room(num_bytes: int) -> None:
    """Give none."""


class RowCache:
    """The rows of one data set; functions that may refuse return why, an empty string when all is well."""

    def __init__(
        self,
        collate: Callable[[Any], Any],
        budget: MemoryBudget,
        compiler: BatchCompiler | None = None,
        room: Room = no_room,
    ) -> None:
        """Keep nothing yet.

        `compiler`: makes rows, so that no batch need be delivered first. `room(num_bytes)` gives memory beyond the
        budget, in a file, or None.
        """
        self.collate = collate
        self.room = room
        self._budget = budget
        self.compiler = compiler
        self.name = ""  # under which other ranks of this machine find the rows
        self.by_workers = False  # they may write rows themselves, where the memory is in common with them
        self.in_common = False
        self.layout: Layout | None = None if compiler is None else compiler.layout
        self.store: RowStore | None = None
        self.direct = False  # nothing is kept: the compiler reads from memory, or there is no room

    @property
    def full(self) -> bool:
        """Return whether every sample can be taken."""
        return self.direct or (self.store is not None and self.store.full)

    @property
    def shown(self) -> Callable[[torch.Tensor], Any]:
        """Return what does as `take`, in the memory of the CPU: for comparing."""
        return self.take

    @property
    def gather(self) -> Gather | None:
        """Return what does as `take` as long as this stays as it is; None where there is no shorter way."""
        if self.direct and self.compiler is not None:
            return gathering_of_arrays(self.compiler)
        if self.store is None or self.layout is None or not self.full:
            return None
        return gathering(self.store, self.compiler, self.layout)

    def missing(self, indices: torch.Tensor) -> torch.Tensor:
        """Return those of `indices` that must be made or delivered before they can be taken."""
        if self.direct:
            return indices[:0]
        return indices if self.store is None else self.store.missing(indices)

    def take(self, indices: torch.Tensor, stream: torch.Generator | None = None, given: Given | None = None) -> Any:
        """Return the batch of samples that are all there; what is random is drawn from `stream`, or torch's own.

        `given`: what was read of each sample, where nothing is kept.
        """
        assert self.layout is not None
        if self.compiler is None:
            assert self.store is not None
            return self.layout.build(self.store.take(indices))
        if self.store is None:
            parts = self.compiler.parts(indices, given)
        else:
            parts = self.store.take(indices, self.compiler.source.place if self.compiler.reads_where_they_lie else None)
        return self.compiler.finish(parts, stream)

    # -- adding rows --------------------------------------------------------------------------------------------

    def make(self, indices: torch.Tensor, given: Given | None = None) -> None:
        """Make the rows of `indices`; `given`: what was read of each.

        Where values lie in memory and all rows take little time, all are made.
        """
        assert self.compiler is not None
        assert self.store is not None
        if self.compiler.in_memory and not self.store.num_filled and self.store.num_bytes <= _AT_ONCE_BYTES:
            number = self.compiler.num_samples
            for start in range(0, number, _SOME):
                some = torch.arange(start, min(start + _SOME, number))
                self.store.fill(slice(start, start + len(some)), self.compiler.parts(some))
            return
        into = self.store.into(indices, self.compiler.source.place)
        self.store.fill(indices, self.compiler.parts(indices, given, into))

    def add(self, dataset: Any, indices: torch.Tensor, batch: Any) -> str:
        """Keep the rows of a batch that was made of `indices`."""
        if self.compiler is not None:
            return ""
        found = layout_of(batch, len(indices))
        if found is None:
            unknown = unknown_class(batch)
            objects = f"objects of a class that is not known ({unknown})"
            return f"its batches hold {objects if unknown else 'something that is not one row per sample'}"
        if self.collate is not torch.utils.data.dataloader.default_collate and stands_twice(batch):
            return "a tensor occurs twice in its batches, or two share memory"
        layout, parts = found
        if self.store is None:
            reason = self._collates_by_row(dataset, indices, parts) or self._open(layout, len(dataset))
            if reason:
                return reason
        assert self.layout is not None
        assert self.store is not None
        if (layout.skeleton, layout.rows) != (self.layout.skeleton, self.layout.rows):
            return "its batches differ in shape"
        if len(self.store.filled.lacking(indices)):
            self.store.fill(indices, parts)
        return ""

    def open(self) -> None:
        """Make room for rows that a maker makes, of the latest stage that fits; where none does, nothing is kept."""
        compiler = self.compiler
        if compiler is None or self.store is not None:
            return
        number = compiler.num_samples
        for stage in reversed(range(worth_keeping(compiler, alone=not self.name) + 1)):
            if stage == 0 and compiler.in_memory:
                break
            compiler.keep(stage)
            if self._in_memory(compiler.rows(), number):
                return
        compiler.keep(0)
        self.direct = compiler.in_memory or compiler.ragged or not self._in_file(compiler.rows(), number)

    def _open(self, layout: Layout, number: int) -> str:
        if self._in_memory(layout.rows, number) or self._in_file(layout.rows, number):
            self.layout = layout
            return ""
        return (
            f"{number} samples of {format_bytes(layout.num_bytes)} take {format_bytes(number * layout.num_bytes)}, "
            f"and {format_bytes(max(0, self._budget.left))} fit into the memory budget"
        )

    def _in_memory(self, rows: Sequence[Rows], number: int) -> bool:
        """Return whether there is memory for the rows: what all ranks have in common, else this process's own."""
        wanted = number * sum(each.num_bytes for each in rows)
        self.store = shared_store(self.name, rows, number, self._budget)
        if self.store is None and self._budget.fits(wanted):
            memory = memory_of_workers(mapped_bytes(rows, number)) if self.by_workers else None
            self.store, self.in_common = RowStore(rows, number, memory), memory is not None
            self._budget.take(wanted, self.store)
        return self.store is not None

    def _in_file(self, rows: Sequence[Rows], number: int) -> bool:
        """Return whether there is a file for the rows; plain values stay in memory until they are saved."""
        plain = number * sum(each.num_bytes for each in rows if each.dtype is None)
        memory = self.room(mapped_bytes(rows, number)) if rows and self._budget.fits(plain) else None
        if memory is None:
            return False
        self.store = RowStore(rows, number, memory)
        self._budget.take(plain, self.store)
        return True

    # -- whether rows stand for themselves ----------------------------------------------------------------------

    def _collates_by_row(self, dataset: Any, indices: torch.Tensor, parts: list[Any]) -> str:
        """Return why a row may depend on the others of its batch, an empty string when it does not."""
        default, whole = torch.utils.data.dataloader.default_collate, indices.tolist()
        if self.collate is not default and len(set(whole)) == 1 < len(dataset):
            whole = [whole[0], (whole[0] + 1) % len(dataset)]  # one sample, or one twice, shows nothing
            found = layout_of(self.collate(ask(dataset, whole)), len(whole))
            parts = found[1] if found is not None else []
        tried = [whole[:1], whole[-1:] + whole[:1], whole[::-1]] if self.collate is not default else [whole[:1]]
        for some in tried[:1] if len(whole) == 1 else tried:
            samples, before = ask(dataset, some), random_states()
            with StateGuard(self.collate) as untouched:
                try:
                    made = self.collate(samples)
                except any_but_signals() as error:  # a stranger's function on a batch of a size it may never have seen
                    return f"its collate function {in_words(error, message=False)} on {len(some)} samples"
                if not undrawn(before, random_states()):
                    restore_random_states(before)
                    return DEPENDS
            found = layout_of(made, len(some))
            places = [whole.index(index) for index in some]
            if untouched.changed or found is None or not rows_equal(found[1], parts, places):
                return DEPENDS
        return ""


def rows_refused(kept_rows: RowCache, loader: Any) -> str:
    """Return why batches of `loader`, as some few samples show it, cannot be kept row by row; nothing stays kept.

    An empty string where that is not known, or where they come from workers.
    """
    default = torch.utils.data.dataloader.default_collate
    if kept_rows.compiler is not None or loader.num_workers or loader.collate_fn is default:
        return ""
    some, before = some_indices(len(loader.dataset), _FEW), random_states()
    try:
        batch = loader.collate_fn(ask(loader.dataset, some))
        drew = not undrawn(before, random_states())
        return (DRAWS if drew else "") or kept_rows.add(loader.dataset, torch.tensor(some), batch)
    except any_but_signals():  # the script's own batches will show it
        return ""
    finally:
        restore_random_states(before)
