"""Rows whose batches are wanted on a device: kept there where they fit, else on the CPU and sent batch by batch."""

from collections.abc import Callable
from typing import Any

import torch

from flatout.pipeline.cache.batch_layout import Layout, layout_of
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.cache.row_cache import Room, RowCache, no_room
from flatout.pipeline.cache.row_store import RowStore
from flatout.pipeline.compile.batch_compiler import BatchCompiler
from flatout.pipeline.device.batch_tensors import replaced
from flatout.pipeline.device.device_stream import DeviceStream
from flatout.pipeline.read.worker_reader import Given

__all__ = ["ResidentRows"]


_SHARE = 0.5  # of the room that is left on the device: what numbers made of bytes may take in their place
_CHUNK_BYTES = 256 * 1024**2  # of numbers, made of bytes at a time


class ResidentRows(RowCache):
    """As `RowCache`; what is taken is on the device, but for `shown`.

    Where what is done last to bytes can be a table, bytes are what travels. Bytes are kept, too, until all are there;
    then what the table makes of them, if there is much room on the device: a batch is gathered, and that is all.
    """

    def __init__(
        self,
        collate: Callable[[Any], Any],
        budget: MemoryBudget,
        compiler: BatchCompiler | None = None,
        room: Room = no_room,
        *,
        device: DeviceStream,
    ) -> None:
        """Keep nothing yet; with `room` in files, rows stay on the CPU, where they are saved from."""
        super().__init__(collate, budget, compiler, room)
        self._device = device
        self._may_reside = room is no_room
        self._there: RowStore | None = None
        self._looked = False  # for room for what the table makes
        if compiler is not None:
            compiler.ends_elsewhere(device.arrive)

    @property
    def resident(self) -> bool:
        """Return whether rows are kept on the device."""
        return self.store is not None and self.store is self._there

    @property
    def shown(self) -> Callable[[torch.Tensor], Any]:
        """Return what does as `take`, in the memory of the CPU: for comparing."""
        return self._shown

    @property
    def gather(self) -> None:
        """Return None: batches are to arrive on the device."""
        return None

    def open(self) -> None:
        """Make room for rows that a maker makes, on the device if there is enough."""
        compiler = self.compiler
        if (
            compiler is not None
            and self.store is None
            and self._may_reside
            and not (compiler.random or compiler.ragged)
        ):
            compiler.keep(compiler.num_stages - 1)
            self.store = self._there = self._device.store(compiler.rows(), compiler.num_samples)
        if self.store is None:
            super().open()

    def _open(self, layout: Layout, number: int) -> str:
        store = self._device.store(layout.rows, number) if self._may_reside else None
        if store is None:
            return super()._open(layout, number)
        self.layout, self.store, self._there = layout, store, store
        return ""

    def take(self, indices: torch.Tensor, stream: torch.Generator | None = None, given: Given | None = None) -> Any:
        """Return the batch of samples that are all there, on the device, by its own stream."""
        with self._device.working():
            if self.compiler is not None:
                if not self._looked and self.resident and self.full:
                    self._looked = True
                    self._look_up(self.compiler)
                return super().take(indices, stream, given)
            assert self.layout is not None
            assert self.store is not None
            return self.layout.build(self._device.arrive(self.store.take(indices)))

    def again(self, indices: torch.Tensor) -> Callable[[], Any] | None:
        """Return what gives the batch of `indices` anew, whatever has changed since; None where that is no gather."""
        compiler, store = self.compiler, self.store
        looked_up = compiler is not None and compiler.elsewhere is not None and compiler.elsewhere.is_looked_up
        layout = self.layout if compiler is None else compiler.layout if looked_up else None
        if store is None or layout is None or not (self.resident and self.full):
            return None

        def gather() -> Any:
            with self._device.working():
                return layout.build(store.take(indices))

        return gather

    def _look_up(self, compiler: BatchCompiler) -> None:
        """Keep what the table makes of the bytes in their place, if there is a table, and room."""
        kept, number, end = self.store, compiler.num_samples, compiler.elsewhere
        if kept is None or end is None or end.table is None:
            return
        if compiler.random or compiler.stage + 1 < compiler.num_stages:  # the table alone does not make the batches
            return
        try:
            one = end.looked_up(kept.take(torch.tensor([0])))
            found = layout_of([part.cpu() if isinstance(part, torch.Tensor) else part for part in one], 1)
            made = None if found is None else self._device.store(found[0].rows, number, _SHARE)
            if made is None:
                return
            some = max(1, _CHUNK_BYTES // (made.num_bytes // number))
            for start in range(0, number, some):
                indices = torch.arange(start, min(start + some, number))
                made.fill(slice(start, start + len(indices)), end.looked_up(kept.take(indices)))
        except RuntimeError:  # out of memory for what lies between
            return
        self.store = self._there = made
        end.is_looked_up = True

    def make(self, indices: torch.Tensor, given: Given | None = None) -> None:
        """Make the rows of `indices`, and write them on the device's stream."""
        with self._device.working():
            super().make(indices, given)

    def add(self, dataset: Any, indices: torch.Tensor, batch: Any) -> str:
        """Keep the rows of a batch that was made of `indices`, written on the device's stream."""
        with self._device.working():
            return super().add(dataset, indices, batch)

    def _shown(self, indices: torch.Tensor) -> Any:
        with self._device.working():
            return replaced(self.take(indices), lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf)
