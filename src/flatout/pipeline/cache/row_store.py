"""Rows of samples kept in memory or in a mapped file, filled as they are first delivered, gathered by index."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from flatout.pipeline.cache.batch_layout import Rows
from flatout.pipeline.cache.columns import Column, DeviceColumn, stored
from flatout.pipeline.cache.filled_rows import FilledRows
from flatout.pipeline.cache.row_view import RowView, WrittenRows
from flatout.torch_loader.sampler_order import as_tensor

__all__ = ["RowColumns", "RowStore", "mapped_bytes"]

_ALIGNED = 4096

_Send = Callable[[torch.Tensor], torch.Tensor]


class RowColumns:
    """Room for one row a sample, a column for each part of a batch.

    Memory of its own is taken from the first row on, by a thread ahead of who writes: empty columns take none.
    """

    def __init__(
        self,
        rows: Sequence[Rows],
        num_samples: int,
        memory: torch.Tensor | None = None,
        send: _Send | None = None,
    ) -> None:
        """Make room for `num_samples`, in `memory` (uint8, shape (`mapped_bytes`,)) where it is given.

        `send` brings indices to the device that the memory is on.
        """
        self._send = send
        self.rows = tuple(rows)
        self.num_samples = num_samples
        self._fresh = memory is None  # and not written to
        self._columns: list[Column] = []
        start = 0
        for each in self.rows:
            end = start + mapped_bytes([each], num_samples)
            place = None if memory is None or each.dtype is None else memory[start:end]
            self._columns.append((Column if send is None else DeviceColumn)(each, num_samples, place))
            start = end

    @property
    def num_bytes(self) -> int:
        """Return the bytes that it takes when it is full."""
        return self.num_samples * sum(rows.num_bytes for rows in self.rows)

    def write(self, indices: torch.Tensor | slice, parts: Sequence[Any]) -> None:
        """Write the rows of a batch: `parts` as `layout_of` gives them, for the samples `indices`."""
        if self._fresh:
            self._populate()
        for column, part in zip(self._columns, parts, strict=True):
            if not isinstance(part, WrittenRows):
                column.write(indices, part)

    def into(self, indices: torch.Tensor, place: int) -> RowView | None:
        """Return where part `place` of the samples `indices` belongs; None where it is no row in the CPU's memory."""
        if self._fresh:
            self._populate()
        chosen = self._columns[place].chosen(indices) if self._send is None else None
        return chosen if isinstance(chosen, RowView) else None

    def take(self, indices: torch.Tensor, lying: int | None = None) -> list[Any]:
        """Return the parts of the samples `indices`, in memory of their own, but for part `lying`: where it lies."""
        places = indices if self._send is None else self._send(indices)
        return [
            column.chosen(indices) if place == lying and self._send is None else column.read(indices, places)
            for place, column in enumerate(self._columns)
        ]

    @property
    def reads(self) -> list[Callable[[torch.Tensor], Any]] | None:
        """Return what reads each part of the samples that it is given, None where a device holds them."""
        return None if self._send is not None else [column.reader() for column in self._columns]

    @property
    def lying(self) -> list[torch.Tensor | None]:
        """Return for each part all rows where they lie; None where they are no rows, or a device holds them."""
        return [None if self._send is not None else column.lying() for column in self._columns]

    def arrays(self, pause: Callable[[], None], room: Callable[[int], torch.Tensor | None]) -> dict[str, torch.Tensor]:
        """Return all rows as arrays by name; `pause` and `room` are for values that are laid out for that.

        Raises:
            ValueError: there are values that cannot be laid out, or no room.
        """
        found: dict[str, torch.Tensor] = {}
        for place, column in enumerate(self._columns):
            found |= column.arrays(str(place), pause, room)
        return found

    def _populate(self) -> None:
        self._fresh = False
        for column in self._columns:
            column.populate()


class RowStore(RowColumns):
    """Rows of samples, with which of them are there."""

    def __init__(
        self,
        rows: Sequence[Rows],
        num_samples: int,
        memory: torch.Tensor | None = None,
        send: _Send | None = None,
        flags: torch.Tensor | None = None,
    ) -> None:
        """Make room for `num_samples`, as `RowColumns` does.

        `flags` (uint8, shape (num_samples,)) tell other ranks that share the memory what is there.
        """
        super().__init__(rows, num_samples, memory, send)
        self._turn = 0
        self.filled = FilledRows(num_samples, flags)

    @classmethod
    def of(cls, rows: Sequence[Rows], num_samples: int, arrays: Mapping[str, torch.Tensor]) -> "RowStore":
        """Return a store in which all samples are: in `arrays`, as `arrays()` gave them.

        Raises:
            ValueError: they are not of these rows.
        """
        made = cls(rows, 0)
        made.num_samples, made.filled, made._fresh = num_samples, FilledRows(num_samples), False
        made.filled.all()
        made._columns = [stored(each, num_samples, arrays, str(place)) for place, each in enumerate(made.rows)]
        return made

    @property
    def num_filled(self) -> int:
        """Return how many samples are there."""
        return self.filled.number

    def missing(self, indices: torch.Tensor) -> torch.Tensor:
        """Return those of `indices` that are not there, each once, in their order."""
        if self.full:
            return indices[:0]
        lacking = self.filled.lacking(indices)
        wanted = dict.fromkeys(lacking.tolist())
        return lacking if len(wanted) == len(lacking) else as_tensor(wanted)

    @property
    def full(self) -> bool:
        """Return whether every sample is there."""
        return self.filled.whole

    def some_filled(self, number: int) -> list[int]:
        """Return up to `number` samples that are there, others each time."""
        self._turn += 1
        return self.filled.some(number, self._turn)

    def fill(self, indices: torch.Tensor | slice, parts: Sequence[Any]) -> None:
        """Keep the rows of a batch: `parts` as `layout_of` gives them, for the samples `indices`.

        A slice stands for samples that follow each other, none of which is there.
        """
        self.write(indices, parts)
        self.filled.add(indices)

    def repeat(self, indices: torch.Tensor) -> None:
        """Write the rows of `indices`, which are there, to every place: each then costs what it will cost."""
        self._wait()
        for column in self._columns:
            column.repeat(indices)
        self._wait()
        self.filled.all()

    def _wait(self) -> None:
        """Wait for whatever a device does with the memory, on any of its streams."""
        if self._send is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()


def mapped_bytes(rows: Sequence[Rows], num_samples: int) -> int:
    """Return the bytes of memory that a store of `num_samples` needs for its tensors."""
    return sum(-(-num_samples * each.num_bytes // _ALIGNED) * _ALIGNED for each in rows if each.dtype is not None)
