"""Columns that grow batch by batch: in memory, or in files without a name once they are too large for that."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from flatout.native.records import Field, Records, laid_out
from flatout.pipeline.read.tables.arrow_memory import Parts, parts_of, plain_array
from flatout.pipeline.read.tables.column_kinds import ColumnKind
from flatout.pipeline.read.tables.growing_array import GrowingArray

__all__ = ["CollectedColumns", "KnownColumn"]

_BLOCK_ROWS = 4096  # written to records at a time: what is read of columns stays in a core's cache


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column whose values are all there.

    Attributes:
        name: of the column.
        kind: of its values.
        parts: the names of its arrays.
        start: where its value stands in a record, of numbers.
    """

    name: str
    kind: ColumnKind
    parts: tuple[str, ...] = ()
    start: int = -1


class _Mask:
    """True and False for all that came, of which only some came with a mask."""

    def __init__(self) -> None:
        self._array: GrowingArray | None = None
        self._num_items = 0

    def add(self, number: int, mask: torch.Tensor | None, held: Any, folder: Path | None) -> None:
        if mask is not None and self._array is None:
            self._array = GrowingArray(torch.bool)
            if folder is not None:
                self._array.to_file(folder)
            self._array.add(torch.ones(self._num_items, dtype=torch.bool, device="cpu"), None)
        if self._array is not None:
            self._array.add(torch.ones(number, dtype=torch.bool, device="cpu") if mask is None else mask, held)
        self._num_items += number

    def arrays(self) -> list[GrowingArray]:
        return [] if self._array is None else [self._array]


class _Masks:
    """What of a column is null: rows, and numbers within rows."""

    def __init__(self) -> None:
        self._masks = {"valid": _Mask(), "inner": _Mask()}

    def add(self, parts: Parts, num_rows: int, num_values: int, folder: Path | None) -> None:
        for name, number in (("valid", num_rows), ("inner", num_values)):
            mask, held = parts.get(name, (None, None))
            self._masks[name].add(number, mask, held, folder)

    @property
    def arrays(self) -> list[GrowingArray]:
        return [array for mask in self._masks.values() for array in mask.arrays()]

    def finish(self) -> dict[str, torch.Tensor]:
        return {name: array.whole() for name, mask in self._masks.items() for array in mask.arrays()}


class _Pieces:
    """A column of lists, text or bytes: what all values consist of, and where each ends."""

    def __init__(self, name: str, kind: ColumnKind) -> None:
        self.name, self.kind = name, kind
        self._values, self._ends, self.masks = GrowingArray(kind.dtype), GrowingArray(torch.int64), _Masks()
        self._end = 0
        self._ends.add(torch.zeros(1, dtype=torch.int64, device="cpu"), None)

    def add(self, parts: Parts, num_rows: int, folder: Path | None) -> None:
        values, held = parts["values"]
        self.add_lists(values, parts["lengths"][0], held)
        self.masks.add(parts, num_rows, len(values), folder)

    def add_lists(self, values: torch.Tensor, lengths: torch.Tensor, held: Any = None) -> None:
        self._values.add(values, held)
        self._ends.add(torch.cumsum(lengths, 0) + self._end, None)
        self._end += len(values)

    @property
    def arrays(self) -> list[GrowingArray]:
        return [self._values, self._ends, *self.masks.arrays]

    def finish(self) -> tuple[KnownColumn, dict[str, torch.Tensor]]:
        made = {"values": self._values.whole(), "ends": self._ends.whole(), **self.masks.finish()}
        return KnownColumn(self.name, self.kind, tuple(made)), made


class _Numbers:
    """A column whose rows stand in records; here is what of them is null."""

    def __init__(self, name: str, kind: ColumnKind) -> None:
        self.name, self.kind = name, kind
        self.masks = _Masks()

    def add(self, parts: Parts, num_rows: int, folder: Path | None) -> None:
        self.masks.add(parts, num_rows, num_rows * self.kind.row_items, folder)

    @property
    def arrays(self) -> list[GrowingArray]:
        return self.masks.arrays

    def finish(self) -> tuple[KnownColumn, dict[str, torch.Tensor]]:
        made = self.masks.finish()
        return KnownColumn(self.name, self.kind, tuple(made)), made


class _Objects:
    """One column of whatever Arrow holds, as a stream of Arrow's own."""

    def __init__(self, name: str, kind: ColumnKind) -> None:
        self.name, self.kind = name, kind
        self._stream = GrowingArray(torch.uint8)
        self._writer: Any = None

    def add(self, array: Any) -> None:
        import pyarrow as pa

        if self._writer is None:
            self._schema = pa.schema([pa.field("values", array.type)])
            self._writer = pa.ipc.new_stream(pa.PythonFile(_Appended(self._stream), "w"), self._schema)
        self._writer.write_batch(pa.record_batch([array], schema=self._schema))

    @property
    def arrays(self) -> list[GrowingArray]:
        return [self._stream]

    def finish(self) -> tuple[KnownColumn, dict[str, torch.Tensor]]:
        if self._writer is not None:
            self._writer.close()
        return KnownColumn(self.name, self.kind, ("arrow",)), {"arrow": self._stream.whole()}


class _Appended:
    """A file that appends what is written to it."""

    closed = False

    def __init__(self, to: GrowingArray) -> None:
        self._to = to

    def write(self, data: Any) -> int:
        """Append bytes."""
        piece = (
            torch.frombuffer(bytearray(data), dtype=torch.uint8)
            if len(data)
            else torch.empty(0, dtype=torch.uint8, device="cpu")
        )
        self._to.add(piece, None)
        return len(data)

    def flush(self) -> None:
        """Have nothing to do."""

    def close(self) -> None:
        """Have nothing to do."""


class CollectedColumns:
    """The columns of a table while it is read: numbers as records, all else in arrays of its own."""

    def __init__(
        self, names: list[str], kinds: list[ColumnKind], expected_rows: int = 0, most_bytes: float = math.inf
    ) -> None:
        """Begin with no rows, in memory.

        `expected_rows`: how many there will be, 0 where that is not known; memory for them is taken beforehand.
        `most_bytes`: how much memory may be taken; more is not taken beforehand, and `fits` says so.
        """
        self._names, self._kinds, self._expected_rows = names, kinds, expected_rows
        self._most_bytes = most_bytes
        self._columns: list[_Pieces | _Numbers | _Objects] = []
        self._fields: dict[int, Field] = {}  # by the place of the column
        self._record_bytes = 0
        self._records = GrowingArray(torch.uint8)
        self._folder: Path | None = None
        self.num_rows = 0

    @property
    def in_memory(self) -> bool:
        """Return whether nothing lies in files."""
        return self._folder is None

    @property
    def num_bytes(self) -> int:
        """Return how much there is by now."""
        return sum(array.num_items * array.dtype.itemsize for array in self._arrays)

    @property
    def expected_bytes(self) -> int:
        """Return how much there is by now, or will be of numbers in records."""
        return self.num_bytes + max(0, self._expected_rows * self._record_bytes - self._records.num_items)

    @property
    def fits(self) -> bool:
        """Return whether what is expected may lie in memory."""
        return self.expected_bytes <= self._most_bytes

    def add(self, arrays: list[Any]) -> None:
        """Append the columns of some rows.

        Raises:
            OSError: the disk has no room.
        """
        number = len(arrays[0])
        if not number:
            return
        kinds = zip(arrays, self._kinds, strict=True)
        given = [array if kind.form == "objects" else _parts(array, kind) for array, kind in kinds]
        if not self._columns:
            self._begin(given)
        for place, (column, parts) in enumerate(zip(self._columns, given, strict=True)):
            if isinstance(column, _Numbers) and "lengths" in parts and _one_length(parts) != column.kind.shape[0]:
                self._columns[place] = self._as_pieces(column, self._fields[place])
            if isinstance(column, _Objects):
                column.add(parts)
            else:
                self._columns[place].add(parts, number, self._folder)  # type: ignore[call-arg]
        self._add_records(given, number)
        self.num_rows += number

    def to_files(self, folder: Path) -> None:
        """Go on in files of `folder`.

        Raises:
            OSError: the disk has no room.
        """
        for array in self._arrays:
            array.to_file(folder)
        self._folder = folder

    def finish(self) -> tuple[tuple[KnownColumn, ...], dict[str, torch.Tensor]]:
        """Return the columns, and their arrays by place and part; nothing is added any more."""
        if not self._columns:
            self._begin([None] * len(self._kinds))
        known, arrays = [], {"records": self._records.whole().view(self.num_rows, self._record_bytes)}
        for place, column in enumerate(self._columns):
            told, parts = column.finish()
            start = self._fields[place].start if isinstance(column, _Numbers) else -1
            known.append(replace(told, start=start))
            arrays.update({f"{place} {part}": tensor for part, tensor in parts.items()})
        return tuple(known), arrays

    @property
    def _arrays(self) -> list[GrowingArray]:
        return [self._records, *(array for column in self._columns for array in column.arrays)]

    def _begin(self, given: list[Any]) -> None:
        """Lay out records; lists that are all as long in the first rows are taken for rows of numbers."""
        for name, kind, parts in zip(self._names, self._kinds, given, strict=True):
            length = _one_length(parts) if kind.form == "lists" and parts is not None else 0
            if length:
                kind = replace(kind, form="numbers", shape=(length,))
            column = _Objects if kind.form == "objects" else _Numbers if kind.form == "numbers" else _Pieces
            self._columns.append(column(name, kind))
        numbers = {at: column.kind for at, column in enumerate(self._columns) if isinstance(column, _Numbers)}
        fields, self._record_bytes = laid_out([Field(kind.dtype, kind.shape) for kind in numbers.values()])
        self._fields = dict(zip(numbers, fields, strict=True))
        if self._folder is not None:
            for array in (array for column in self._columns for array in column.arrays):
                array.to_file(self._folder)
        elif self._expected_rows and self.fits and not self._records.reserve(self._expected_rows * self._record_bytes):
            self._most_bytes = 0

    def _add_records(self, given: list[Any], number: int) -> None:
        if not self._fields:
            return
        columns = []
        for place, field in self._fields.items():
            is_there = isinstance(self._columns[place], _Numbers)  # else lists that turned out to be of several lengths
            values = (
                given[place]["values"][0]
                if is_there
                else torch.zeros(field.num_bytes * number, dtype=torch.uint8, device="cpu")
            )
            columns.append(values.view(field.dtype).view(number, *field.shape))
        room = self._records.room(number * self._record_bytes).view(number, self._record_bytes)
        records = Records(room, [*self._fields.values()])
        for start in range(0, number, _BLOCK_ROWS):
            records.write(start, [column[start : start + _BLOCK_ROWS] for column in columns])
        self._records.add(records.memory.view(-1), None)

    def _as_pieces(self, column: _Numbers, field: Field) -> _Pieces:
        """Return a column of lists of any length that holds what was added to one of rows of numbers."""
        made = _Pieces(column.name, replace(column.kind, form="lists", shape=()))
        if self._folder is not None:
            for array in made.arrays:
                array.to_file(self._folder)
        for piece in self._records.pieces(_BLOCK_ROWS * self._record_bytes):
            rows = Records(piece.view(-1, self._record_bytes), [field]).rows(0)
            lengths = torch.full((len(rows),), field.shape[0], dtype=torch.int64, device="cpu")
            made.add_lists(rows.contiguous().view(field.dtype).view(-1), lengths)
        made.masks = column.masks
        return made


def _parts(array: Any, kind: ColumnKind) -> Parts:
    return {name: (tensor, held) for name, tensor, held in parts_of(plain_array(array), kind)}


def _one_length(parts: Parts) -> int:
    """Return how long all lists are; 0 where they are not all as long."""
    lengths = parts["lengths"][0]
    return int(lengths[0]) if bool((lengths == lengths[0]).all()) else 0
