"""Tables that are read anew in each pass: row groups as they are asked for, a window of them in memory at a time."""

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler

from flatout.errors import BadTable
from flatout.native.records import SIGNED
from flatout.pipeline.cache.memory_budget import MemoryBudget
from flatout.pipeline.read.tables.collected_columns import CollectedColumns
from flatout.pipeline.read.tables.column_kinds import kind_of
from flatout.pipeline.read.tables.opened_table import FilesOfTable, TableRequest
from flatout.pipeline.read.tables.table_columns import TableColumns, refuse_nulls
from flatout.pipeline.read.tables.table_rows import TableRows, row_places
from flatout.pipeline.read.tables.table_scan import TablePiece
from flatout.units import format_bytes
from flatout.watch.unwritten import UnwrittenMemory

__all__ = ["WindowSampler", "WindowedTable"]

_Take = Callable[[TableColumns, torch.Tensor], Any]
_Found = tuple[torch.Tensor, Any]


class WindowedTable(Dataset[Any]):
    """The rows of a table of which a window of row groups is in memory; `sampler()` asks for rows in such an order.

    Attributes:
        transform: called on each row, if it is not None.
    """

    def __init__(self, request: TableRequest, transform: Callable[[Any], Any] | None) -> None:
        """Look at the files, and at the first row group for its size.

        Raises:
            BadTable: the files are no table; a row group is larger than the memory that may be used.
        """
        self.transform, self._request = transform, request
        self._open(FilesOfTable.now(request))

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return the samples of a batch; row groups that are not in memory are read."""
        rows = TableRows(_FoundColumns(self._schema.names, self._found), row_places(indices, len(self)))
        return rows if self.transform is None else [self.transform(row) for row in rows]

    def __getstate__(self) -> dict[str, Any]:
        return {"request": self._request, "transform": self.transform, "identities": self._files.identities}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.transform, self._request = state["transform"], state["request"]
        files = FilesOfTable.now(self._request)
        if files.identities != state["identities"]:
            raise BadTable("Files of the table changed since it was opened.", "", "Open it once they are written.")
        self._open(files)

    def sampler(self, generator: torch.Generator | None = None) -> "WindowSampler":
        """Return a sampler: row groups in random order, the rows of a window of them shuffled together."""
        return WindowSampler(self._sizes, self._window, generator)

    def _open(self, files: FilesOfTable) -> None:
        self._files = files
        scan = self._request.scan(files.files)
        pieces, self._schema = scan.pieces, scan.schema
        self._sizes = [piece.num_rows() for piece in pieces]
        self._ends = torch.tensor(self._sizes, dtype=torch.int64, device="cpu").cumsum(0)
        self._weights = [size * piece.row_bytes for size, piece in zip(self._sizes, pieces, strict=True)]
        self._seen = [0.0, 0.0]  # weight and bytes of all row groups that were read
        self._left = MemoryBudget(self._request.max_bytes).left
        self._held = UnwrittenMemory((pieces, OrderedDict[int, TableColumns]()))
        self._window = self._fitting()

    def _fitting(self) -> int:
        """Return how many row groups there is memory for, one kept free for the next."""
        largest = max(range(len(self._sizes)), key=self._weights.__getitem__, default=None)
        if largest is None or not self._sizes[largest]:
            return 1
        return max(1, self._left // max(1, self._columns(largest).num_bytes) - 1)

    def _columns(self, piece: int) -> TableColumns:
        """Return the columns of a row group; those that were used last stay in memory beside it, as far as they fit."""
        pieces, held = self._held.held
        if piece in held:
            held.move_to_end(piece)
            found: TableColumns = held[piece]
            return found
        weight, num_bytes = self._seen
        self._make_room(int(self._weights[piece] * num_bytes / max(1.0, weight)))
        self._check(pieces[piece])
        kinds = [kind_of(each.type) for each in self._schema]
        collected = CollectedColumns(self._schema.names, kinds, self._sizes[piece], self._left)
        for arrays in pieces[piece].batches():
            collected.add(arrays)
            if not collected.fits:
                raise _too_large(collected.expected_bytes, self._left)
        self._check(pieces[piece])
        made = TableColumns(collected.num_rows, *collected.finish())
        self._make_room(made.num_bytes)
        self._seen = [weight + self._weights[piece], num_bytes + made.num_bytes]
        held[piece] = made
        return made

    def _make_room(self, num_bytes: int) -> None:
        """Let go of the row groups that were not used for longest, until so much more fits."""
        held = self._held.held[1]
        taken = sum(columns.num_bytes for columns in held.values())
        while held and taken + num_bytes > self._left:
            taken -= held.popitem(last=False)[1].num_bytes

    def _check(self, piece: TablePiece) -> None:
        if piece.file.identity() != self._files.identities[piece.at]:
            raise BadTable(
                f"{piece.file.path} changed since the table was opened.",
                "Its rows are read when they are asked for, and would be of two versions.",
                "Open the table once its files are written.",
            )

    def _found(self, places: torch.Tensor, take: _Take) -> Iterator[_Found]:
        """Yield which of `places` lie in a row group, and what is taken of its columns; those in memory come first."""
        all_pieces = torch.searchsorted(self._ends, places, right=True)
        held = self._held.held[1]
        for piece in sorted(all_pieces.unique().tolist(), key=lambda piece: piece not in held):
            which = torch.nonzero(all_pieces == piece).view(-1)
            start = int(self._ends[piece]) - self._sizes[piece]
            yield which, take(self._columns(piece), places[which] - start)


def _too_large(num_bytes: int, left: int) -> BadTable:
    return BadTable(
        f"A row group of the table takes {format_bytes(num_bytes)}, and {format_bytes(max(0, left))} may be used.",
        "A window holds one row group at least.",
        "Write smaller row groups, choose fewer columns=, or allow more memory by max_bytes=.",
    )


class _FoundColumns:
    """The columns of rows that lie in several row groups; stands for `TableColumns` to rows."""

    def __init__(self, names: list[str], found: Callable[[torch.Tensor, _Take], Iterator[_Found]]) -> None:
        self.names, self._found = names, found

    def values(self, places: torch.Tensor) -> list[list[Any]]:
        made: list[list[Any]] = [[None] * len(places) for _ in self.names]
        for which, found in self._found(places, TableColumns.values):
            for to, values in zip(made, found, strict=True):
                for at, value in zip(which.tolist(), values, strict=True):
                    to[at] = value
        return made

    def batch(self, places: torch.Tensor) -> dict[str, Any]:
        try:
            found: list[tuple[torch.Tensor, dict[str, Any]]] = list(self._found(places, TableColumns.batch))
        except BadTable:
            for name, values in zip(self.names, self.values(places), strict=True):
                null = [place for place, value in zip(places.tolist(), values, strict=True) if value is None]
                refuse_nulls(name, null, len(places))
            raise
        if len(found) == 1:
            whole: dict[str, Any] = found[0][1]
            return whole
        back = torch.cat([which for which, _ in found]).argsort()
        return {name: self._joined(name, [batch[name] for _, batch in found], back, places) for name in self.names}

    def _joined(self, name: str, parts: list[Any], back: torch.Tensor, places: torch.Tensor) -> Any:
        if all(isinstance(part, torch.Tensor) and part.shape[1:] == parts[0].shape[1:] for part in parts):
            kind = parts[0].dtype
            bits = torch.cat([part.view(SIGNED.get(kind, kind)) for part in parts])
            return bits.index_select(0, back).view(kind)
        if all(isinstance(part, list) and isinstance(part[0], str | bytes) for part in parts):
            values = [value for part in parts for value in part]
            return [values[at] for at in back.tolist()]
        return torch.utils.data.default_collate(self.values(places)[self.names.index(name)])


class WindowSampler(Sampler[int]):
    """Row groups in random order; the rows of some of them, which are in memory together, shuffled together."""

    def __init__(self, sizes: Sequence[int], window: int, generator: torch.Generator | None = None) -> None:
        """Take how many rows each row group has, and how many groups are shuffled together."""
        self._sizes, self._window, self._generator = sizes, window, generator

    def __len__(self) -> int:
        return sum(self._sizes)

    def __iter__(self) -> Iterator[int]:
        starts = [0, *torch.tensor(self._sizes, dtype=torch.int64, device="cpu").cumsum(0).tolist()]
        order = torch.randperm(len(self._sizes), generator=self._generator).tolist()
        for first in range(0, len(order), self._window):
            groups = order[first : first + self._window]
            rows = torch.cat([torch.arange(starts[one], starts[one + 1], device="cpu") for one in groups])
            yield from rows[torch.randperm(len(rows), generator=self._generator)].tolist()
