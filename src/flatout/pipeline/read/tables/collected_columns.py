"""Columns that grow batch by batch: in memory, or in files without a name once they are too large for that."""

import mmap
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from flatout.pipeline.read.tables.arrow_memory import parts_of, plain_array
from flatout.pipeline.read.tables.column_kinds import ColumnKind

__all__ = ["CollectedColumns", "GrowingArray", "KnownColumn"]


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """A column whose values are all there: its name, its kind, and the names of its arrays."""

    name: str
    kind: ColumnKind
    parts: tuple[str, ...] = ()


class GrowingArray:
    """Numbers that are appended to, and become one array."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Begin with none, in memory."""
        self.dtype, self.num_items = dtype, 0
        self._pieces: list[tuple[torch.Tensor, Any]] = []  # each with what has to live as long
        self._file: Any = None

    def add(self, piece: torch.Tensor, held: Any) -> None:
        """Append a piece; `held` is what it lies in, None for memory of its own."""
        self.num_items += len(piece)
        if self._file is None:
            self._pieces.append((piece, held))
        else:
            self._write(piece)

    def to_file(self, folder: Path) -> None:
        """Go on in a file of `folder` that has no name.

        Raises:
            OSError: the disk has no room.
        """
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115: it lives as long as the array
        pieces, self._pieces = self._pieces, []
        for piece, _ in pieces:
            self._write(piece)

    def whole(self) -> torch.Tensor:
        """Return all of it, once; what it was made of is let go."""
        pieces, self._pieces = self._pieces, []
        if self._file is None:
            made = torch.empty(self.num_items, dtype=self.dtype)
            start = 0
            for piece, _ in pieces:
                made[start : start + len(piece)] = piece
                start += len(piece)
            return made
        if not self.num_items:
            return torch.empty(0, dtype=self.dtype)
        with self._file as file:
            mapped = mmap.mmap(file.fileno(), self.num_items * self.dtype.itemsize)
        return torch.frombuffer(mapped, dtype=self.dtype)

    def _write(self, piece: torch.Tensor) -> None:
        left = memoryview(piece.contiguous().view(torch.uint8).numpy()) if len(piece) else memoryview(b"")
        while len(left):
            left = left[os.write(self._file.fileno(), left) :]


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
            self._array.add(torch.ones(self._num_items, dtype=torch.bool), None)
        if self._array is not None:
            self._array.add(torch.ones(number, dtype=torch.bool) if mask is None else mask, held)
        self._num_items += number

    def arrays(self) -> list[GrowingArray]:
        return [] if self._array is None else [self._array]


class _Column:
    """One column: its values, how long they are, what of them is null."""

    def __init__(self, name: str, kind: ColumnKind) -> None:
        self.name, self.kind = name, kind
        self._values, self._ends = GrowingArray(kind.dtype), GrowingArray(torch.int64)
        self._masks = {"valid": _Mask(), "inner": _Mask()}
        self._length: int | None = None  # of each list, as long as they are all as long
        self._end = 0
        if kind.form in ("lists", "text", "bytes"):
            self._ends.add(torch.zeros(1, dtype=torch.int64), None)

    def add(self, array: Any, folder: Path | None) -> None:
        parts = {name: (tensor, held) for name, tensor, held in parts_of(plain_array(array), self.kind)}
        values, held = parts["values"]
        self._values.add(values, held)
        if "lengths" in parts:
            self._add_lengths(parts["lengths"][0])
        for name, number in (("valid", len(array)), ("inner", len(values))):
            mask, held = parts.get(name, (None, None))
            self._masks[name].add(number, mask, held, folder)

    def _add_lengths(self, lengths: torch.Tensor) -> None:
        if len(lengths):
            self._length = int(lengths[0]) if self._length is None else self._length
            self._length = self._length if bool((lengths == self._length).all()) else -1
            self._ends.add(torch.cumsum(lengths, 0) + self._end, None)
            self._end += int(lengths.sum())

    @property
    def arrays(self) -> list[GrowingArray]:
        masks = [array for mask in self._masks.values() for array in mask.arrays()]
        return [self._values, self._ends, *masks]

    def finish(self) -> tuple[KnownColumn, dict[str, torch.Tensor]]:
        kind, made = self.kind, {"values": self._values.whole()}
        if kind.form == "lists" and (self._length or 0) > 0:
            kind = replace(kind, form="numbers", shape=(self._length or 0,))
        if kind.form == "numbers":
            made["values"] = made["values"].view(-1, *kind.shape) if kind.row_items else made["values"]
        else:
            made["ends"] = self._ends.whole()
        for name, mask in self._masks.items():
            for array in mask.arrays():
                made[name] = array.whole()
        return KnownColumn(self.name, kind, tuple(made)), made


class _Objects:
    """One column of whatever Arrow holds, as a stream of Arrow's own."""

    def __init__(self, name: str, kind: ColumnKind) -> None:
        self.name, self.kind = name, kind
        self._stream, self._writer = GrowingArray(torch.uint8), None

    def add(self, array: Any, _folder: Path | None) -> None:
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
        piece = torch.frombuffer(bytearray(data), dtype=torch.uint8) if len(data) else torch.empty(0, dtype=torch.uint8)
        self._to.add(piece, None)
        return len(data)

    def flush(self) -> None:
        """Have nothing to do."""

    def close(self) -> None:
        """Have nothing to do."""


class CollectedColumns:
    """The columns of a table while it is read."""

    def __init__(self, names: list[str], kinds: list[ColumnKind]) -> None:
        """Begin with no rows, in memory."""
        self._columns: list[_Column | _Objects] = [
            (_Objects if kind.form == "objects" else _Column)(name, kind)
            for name, kind in zip(names, kinds, strict=True)
        ]
        self._folder: Path | None = None
        self.num_rows = 0

    @property
    def in_memory(self) -> bool:
        """Return whether nothing lies in files."""
        return self._folder is None

    @property
    def num_bytes(self) -> int:
        """Return how much there is by now."""
        arrays = [array for column in self._columns for array in column.arrays]
        return sum(array.num_items * array.dtype.itemsize for array in arrays)

    def add(self, arrays: list[Any]) -> None:
        """Append the columns of some rows.

        Raises:
            OSError: the disk has no room.
        """
        self.num_rows += len(arrays[0]) if arrays else 0
        for column, array in zip(self._columns, arrays, strict=True):
            column.add(array, self._folder)

    def to_files(self, folder: Path) -> None:
        """Go on in files of `folder`.

        Raises:
            OSError: the disk has no room.
        """
        for column in self._columns:
            for array in column.arrays:
                array.to_file(folder)
        self._folder = folder

    def finish(self) -> tuple[tuple[KnownColumn, ...], dict[str, torch.Tensor]]:
        """Return the columns, and their arrays by place and part; nothing is added any more."""
        known, arrays = [], {}
        for place, column in enumerate(self._columns):
            told, parts = column.finish()
            known.append(told)
            arrays.update({f"{place} {part}": tensor for part, tensor in parts.items()})
        return tuple(known), arrays
