"""Rows of a table as samples, and many of them that are gathered when somebody looks at them."""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from flatout.torch_loader.collated_types import collate_by, collated

__all__ = ["ColumnsOfRows", "RowNotGathered", "TableRow", "TableRows", "row_places"]


_OF_THE_TYPE = {"__new__", "__init__", "__getattribute__", "__class_getitem__", "__len__", "__sizeof__"}
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class ColumnsOfRows(Protocol):
    """Columns of which rows and batches are made, by the places of rows."""

    names: list[str]

    def values(self, places: torch.Tensor) -> list[list[Any]]:
        """Return the values of rows, column by column."""

    def batch(self, places: torch.Tensor) -> dict[str, Any]:
        """Return what torch's collate function makes of rows."""


class TableRow(dict[str, Any]):
    """A sample: the values of a row by the names of their columns."""


class RowNotGathered:
    """Stands in a list for each row until somebody looks; compiled code that reads memory of lists meets it."""

    def __repr__(self) -> str:
        return "<a row of a table, which is there once it is asked for: make a plain list of the batch, list(batch)>"


_NOT_GATHERED: Any = RowNotGathered()


class TableRows(list[TableRow]):
    """A list of the rows at some places.

    Torch's collate function gathers a batch of them column by column. Whoever looks at the rows, or changes the list,
    has them one by one: then they are in it as in any list.
    """

    def __init__(self, columns: ColumnsOfRows, places: torch.Tensor) -> None:
        """Take places of rows that are there; nothing is gathered yet."""
        super().__init__([_NOT_GATHERED] * len(places))
        self._columns, self._places = columns, places
        self._is_filled = not len(places)
        self._first: TableRow | None = None
        self._shown = 0  # how often the first was asked for

    def __getitem__(self, place: Any) -> Any:
        if self._is_filled or type(place) is not int or place:
            self.fill()
            return super().__getitem__(place)
        self._shown += 1
        if self._first is None:
            self._first = _rows_of(self._columns, self._places[:1])[0]
        return self._first

    def __radd__(self, other: list[Any]) -> list[Any]:
        self.fill()
        return other + list(self) if isinstance(other, list) else NotImplemented

    def __reduce__(self) -> Any:
        """Be a plain list of rows for other processes, and for copies."""
        self.fill()
        return list, ([*self],)

    def batch(self) -> dict[str, Any] | None:
        """Return the batch; None where somebody has seen rows, and may have changed them."""
        if self._is_filled or self._shown > 1:  # torch's collate function looks at the first one once
            return None
        return self._columns.batch(self._places)

    def fill(self) -> None:
        """Have all rows in the list."""
        if self._is_filled:
            return
        rows = _rows_of(self._columns, self._places)
        if self._first is not None:
            rows[0] = self._first
        self._is_filled = True
        super().__setitem__(slice(None), rows)


def _filled(name: str) -> Callable[..., Any]:
    """Return a method of lists that finds all rows in the list."""
    plain = getattr(list, name)

    @functools.wraps(plain)
    def method(rows: TableRows, *given: Any, **named: Any) -> Any:
        rows.fill()
        return plain(rows, *given, **named)

    return method


for _name, _method in vars(list).items():
    if callable(_method) and _name not in vars(TableRows) and _name not in _OF_THE_TYPE:
        setattr(TableRows, _name, _filled(_name))


def row_places(indices: Iterable[Any], num_rows: int) -> torch.Tensor:
    """Return the places of rows by their indices, of which those below zero count from the end.

    Raises:
        IndexError: there is no such row.
        TypeError: an index is no whole number.
    """
    if isinstance(indices, torch.Tensor) and indices.dim() == 1 and indices.dtype in _WHOLE:
        places = indices.to("cpu", torch.int64)
    else:
        whole = list(map(operator.index, indices))
        try:
            places = torch.tensor(whole, dtype=torch.int64, device="cpu")
        except (RuntimeError, ValueError, OverflowError):  # of more than 64 bits
            raise IndexError(f"row {max(whole, key=abs)} of a table of {num_rows} rows") from None
    if len(places):
        low, high = int(places.min()), int(places.max())
        if low < -num_rows or high >= num_rows:
            raise IndexError(f"row {low if low < -num_rows else high} of a table of {num_rows} rows")
        places = places % num_rows if low < 0 else places
    return places


def _rows_of(columns: ColumnsOfRows, places: torch.Tensor) -> list[TableRow]:
    return [TableRow(zip(columns.names, row, strict=True)) for row in zip(*columns.values(places), strict=True)]


def _collate_rows(batch: Any, *, collate_fn_map: Any = None) -> dict[str, Any]:
    made = batch.batch() if type(batch) is TableRows else None
    if made is not None:
        return made
    return {key: collated([row[key] for row in batch], collate_fn_map) for key in batch[0]}


collate_by(TableRow, _collate_rows)
