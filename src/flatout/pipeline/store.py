"""Rows of samples kept in memory, filled as they are first delivered, gathered by index."""

from collections.abc import Sequence
from typing import Any

import torch

from flatout.pipeline.layout import Rows

__all__ = ["Store"]


class Store:
    """One row a sample for each part of a batch.

    `num_filled` counts the samples that are there. Memory is taken as rows are written: an empty store takes none.
    """

    def __init__(self, rows: Sequence[Rows], num_samples: int) -> None:
        """Make room for `num_samples`."""
        self.rows = tuple(rows)
        self.num_samples = num_samples
        self.num_filled = 0
        self._turn = 0
        self._filled = torch.zeros(num_samples, dtype=torch.bool)
        self._columns = [_Column(rows, num_samples) for rows in self.rows]

    @property
    def num_bytes(self) -> int:
        """Return the bytes that it takes when it is full."""
        return self.num_samples * sum(rows.num_bytes for rows in self.rows)

    def missing(self, indices: torch.Tensor) -> torch.Tensor:
        """Return those of `indices` that are not there, each once, in their order."""
        if self.full:
            return indices[:0]
        wanted: dict[int, None] = dict.fromkeys(indices[~self._filled[indices]].tolist())
        return torch.tensor(list(wanted), dtype=torch.int64)

    @property
    def full(self) -> bool:
        """Return whether every sample is there."""
        return self.num_filled == self.num_samples

    def some_filled(self, number: int) -> list[int]:
        """Return up to `number` samples that are there, others each time."""
        if not self.num_filled:
            return []
        self._turn += 1
        there = torch.arange(self.num_samples) if self.full else self._filled.nonzero().flatten()
        return [int(there[(self._turn * 7919 + each * 104_729) % len(there)]) for each in range(number)]

    def fill(self, indices: torch.Tensor, parts: Sequence[Any]) -> None:
        """Keep the rows of a batch: `parts` as `layout_of` gives them, for the samples `indices`."""
        for column, part in zip(self._columns, parts, strict=True):
            column.write(indices, part)
        self.num_filled += len(indices[~self._filled[indices]].unique())
        self._filled[indices] = True

    def repeat(self, indices: torch.Tensor) -> None:
        """Write the rows of `indices`, which are there, to every place: each then costs what it will cost."""
        for column in self._columns:
            column.repeat(indices)
        self._filled[:] = True
        self.num_filled = self.num_samples

    def take(self, indices: torch.Tensor) -> list[Any]:
        """Return the parts of the samples `indices`, in memory of their own."""
        return [column.read(indices) for column in self._columns]


class _Column:
    """The rows of one part."""

    def __init__(self, rows: Rows, num_samples: int) -> None:
        inner = [axis - 1 for axis in rows.axes[1:]]
        self._to_memory = rows.axes if rows.axes != tuple(range(len(rows.axes))) else None
        self._back = _inverse(rows.axes)
        self._values: list[Any] | None = None
        if rows.dtype is None:
            self._values = [None] * num_samples
        else:
            self._tensor = torch.empty((num_samples, *(rows.shape[axis] for axis in inner)), dtype=rows.dtype)

    def write(self, indices: torch.Tensor, part: Any) -> None:
        if self._values is not None:
            for index, value in zip(indices.tolist(), part, strict=True):
                self._values[index] = value
            return
        self._tensor[indices] = part if self._to_memory is None else part.permute(self._to_memory)

    def repeat(self, indices: torch.Tensor) -> None:
        if self._values is not None:
            known = [self._values[index] for index in indices.tolist()]
            self._values[:] = (known * (len(self._values) // len(known) + 1))[: len(self._values)]
            return
        known_rows, length = self._tensor[indices], len(self._tensor)
        for start in range(0, length, len(known_rows)):
            self._tensor[start : start + len(known_rows)] = known_rows[: length - start]

    def read(self, indices: torch.Tensor) -> Any:
        if self._values is not None:
            return [self._values[index] for index in indices.tolist()]
        rows = torch.index_select(self._tensor, 0, indices)
        return rows if self._to_memory is None else rows.permute(self._back)


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=lambda place: axes[place]))
