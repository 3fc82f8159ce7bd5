"""Rows of a table as samples, and many of them that are gathered when somebody looks at them."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, overload

import torch

from flatout.torch_loader.collated_types import collate_by, collated

__all__ = ["ColumnsOfRows", "TableRow", "TableRows"]


class ColumnsOfRows(Protocol):
    """Columns of which rows and batches are made, by the places of rows."""

    names: list[str]

    def values(self, places: torch.Tensor) -> list[list[Any]]:
        """Return the values of rows, column by column."""

    def batch(self, places: torch.Tensor) -> dict[str, Any]:
        """Return what torch's collate function makes of rows."""


class TableRow(dict[str, Any]):
    """A sample: the values of a row by the names of their columns."""


class TableRows(Sequence[TableRow]):
    """The rows at some places.

    Torch's collate function gathers a batch of them column by column. Whoever looks at the rows has them one by one.
    """

    def __init__(self, columns: ColumnsOfRows, places: torch.Tensor) -> None:
        """Take places of rows that are there; nothing is gathered yet."""
        self._columns, self._places = columns, places
        self._rows: list[TableRow] | None = None
        self._first: TableRow | None = None
        self._shown = 0  # how often the first was asked for

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[TableRow]:
        return iter(self._all())

    @overload
    def __getitem__(self, place: int) -> TableRow: ...

    @overload
    def __getitem__(self, place: slice) -> list[TableRow]: ...

    def __getitem__(self, place: Any) -> Any:
        if place != 0 or self._rows is not None or not len(self._places):
            return self._all()[place]
        self._shown += 1
        if self._first is None:
            self._first = _rows_of(self._columns, self._places[:1])[0]
        return self._first

    def __reduce__(self) -> Any:
        """Be a list of rows for other processes, and for copies."""
        return list, (self._all(),)

    def batch(self) -> dict[str, Any] | None:
        """Return the batch; None where somebody has seen rows, and may have changed them."""
        if self._rows is not None or self._shown > 1:  # torch's collate function looks at the first one once
            return None
        return self._columns.batch(self._places)

    def _all(self) -> list[TableRow]:
        if self._rows is None:
            self._rows = _rows_of(self._columns, self._places)
            if self._first is not None:
                self._rows[0] = self._first
        return self._rows


def _rows_of(columns: ColumnsOfRows, places: torch.Tensor) -> list[TableRow]:
    return [TableRow(zip(columns.names, row, strict=True)) for row in zip(*columns.values(places), strict=True)]


def _collate_rows(batch: Any, *, collate_fn_map: Any = None) -> dict[str, Any]:
    made = batch.batch() if type(batch) is TableRows else None
    if made is not None:
        return made
    return {key: collated([row[key] for row in batch], collate_fn_map) for key in batch[0]}


collate_by(TableRow, _collate_rows)
