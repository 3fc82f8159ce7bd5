"""`flatout.table`: a data set of the rows of Parquet, Arrow and CSV files."""

import copy
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from flatout.errors import BadTable
from flatout.pipeline.read.tables.opened_table import MAPPED, Reopened, TableRequest, keep, opened_table
from flatout.pipeline.read.tables.table_columns import TableColumns
from flatout.pipeline.read.tables.table_files import Paths
from flatout.pipeline.read.tables.table_rows import TableRows, row_places
from flatout.pipeline.read.tables.table_scan import Columns
from flatout.pipeline.read.tables.windows import WindowedTable
from flatout.units import format_bytes
from flatout.watch.unwritten import UnwrittenMemory

__all__ = ["TableDataset", "table"]

_Transform = Callable[[Any], Any]


class TableDataset(Dataset[Any]):
    """The rows of a table, read when it was made: what becomes of the files afterwards does not change them.

    A sample is a dictionary from the names of columns to values: a tensor of no dimensions for a number, of one for a
    list of numbers, `str`, `bytes`, else what pyarrow gives; None for null.

    Attributes:
        transform: called on each row, if it is not None.
    """

    def __init__(self, request: TableRequest, transform: _Transform | None, again: Reopened | None = None) -> None:
        """Read the table, or map what is kept of it; `again`: the rows that another process has."""
        self.transform = transform
        self._request = request
        opened = opened_table(request, again)
        self._key, self._place, known = opened.key, opened.place, opened.known
        self._num_rows, self._num_bytes = known.num_rows, known.num_bytes
        self._columns, self._known = (
            UnwrittenMemory(TableColumns(known.num_rows, known.columns, known.arrays)),
            UnwrittenMemory(known),
        )

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, index: Any) -> Any:
        place = operator.index(index)
        if not -self._num_rows <= place < self._num_rows:
            raise IndexError(f"row {place} of a table of {self._num_rows} rows")
        rows = TableRows(self._columns.held, torch.tensor([place % self._num_rows], device="cpu"))
        return rows[0] if self.transform is None else self.transform(rows[0])

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return the samples of a batch."""
        rows = TableRows(self._columns.held, row_places(indices, self._num_rows))
        return rows if self.transform is None else [self.transform(row) for row in rows]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self._num_rows))

    def __repr__(self) -> str:
        names = ", ".join(self._columns.held.names)
        return f"<table of {self._num_rows} rows: {names}; {format_bytes(self._num_bytes)} {self._place}>"

    def __copy__(self) -> "TableDataset":
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> "TableDataset":
        """Return another one over the same columns, which nobody writes to."""
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made.transform = copy.deepcopy(self.transform, memo)
        return made

    def __reduce__(self) -> Any:
        """Be a note of what was asked for: another process maps what this one keeps on disk."""
        if self._key is None:
            raise BadTable(
                "The files of this table cannot be told from later ones: their storage gives no time and no ETag.",
                "Another process may read other rows than this one has.",
                "Start workers by fork, or copy the files to a disk.",
            )
        kept = self._place.startswith(MAPPED) or keep(self._request, self._key, self._known.held)
        return _opened_again, (self._request, self.transform, self._key, kept)

    @property
    def dense_columns(self) -> TableColumns | None:
        """Return the columns where a sample is nothing but numbers of one shape each; else None."""
        columns: TableColumns = self._columns.held
        return columns if self.transform is None and columns.dense else None


def table(
    paths: Paths,
    columns: Columns = None,
    transform: _Transform | None = None,
    *,
    where: Any = None,
    format: str | None = None,
    folder: str | os.PathLike[str] | None = None,
    max_bytes: int | None = None,
    shuffle: str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> TableDataset | WindowedTable:
    """Return a data set of the rows of a table in Parquet, Arrow or CSV files; docs/howto/tables.md says more.

    `paths`: a file, a folder, a pattern, a URL that fsspec knows, or a list of these. `columns`: names, or a dictionary
    from names to types that Arrow is to turn them into (None: as they are). `where`: rows that are left, as an
    expression of pyarrow or a list of tuples (`[("year", ">=", 2024)]`). `transform(row)` makes the sample.

    Everything is read now. It stays in memory where it takes at most `max_bytes` (None: 40 % of what is free), else in
    a file in `folder` (None: `~/.cache/flatout/tables`), which is mapped, and found again by the next process. Ranks of
    one machine, and workers, have it once. `shuffle="window"`: nothing is kept; row groups are read when their rows are
    asked for, and as many stay in memory as fit. `DataLoader(t, sampler=t.sampler())` asks for them in such an order.

    Raises:
        BadTable: files are missing, damaged, or differ from one another; the disk is full; pyarrow is missing.
        ValueError: `shuffle` is neither None nor "window".
        TypeError: `columns` is a text.
    """
    if isinstance(columns, str):
        raise TypeError(f"columns is {columns!r}; it must be a list of names, or a dictionary from names to types")
    if shuffle not in (None, "window"):
        raise ValueError(f"shuffle is {shuffle!r}; it must be None or 'window'")
    _needs_pyarrow()
    path = None if folder is None else Path(folder).absolute()
    named = paths if isinstance(paths, str | os.PathLike) else tuple(paths)
    chosen = dict(columns) if isinstance(columns, Mapping) else None if columns is None else tuple(columns)
    request = TableRequest(named, chosen, where, format, path, max_bytes, storage_options)
    return TableDataset(request, transform) if shuffle is None else WindowedTable(request, transform)


def _needs_pyarrow() -> None:
    try:
        import pyarrow.dataset  # noqa: F401
    except ImportError as error:
        raise BadTable(
            "flatout.table needs pyarrow, which is not installed.",
            "It reads Parquet, Arrow and CSV files.",
            "Install it: pip install flatout[tables].",
        ) from error


def _opened_again(
    request: TableRequest, transform: _Transform | None, key: str, kept: bool
) -> TableDataset:  # in another process
    return TableDataset(request, transform, Reopened(key, kept))
