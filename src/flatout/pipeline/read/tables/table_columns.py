"""The columns of a table: one value, many values, and what torch's collate function makes of many, all copies."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from flatout.errors import BadTable
from flatout.native.records import Field, Records
from flatout.native.recycled_memory import RECYCLED_BYTES, RecycledMemory, SharedMemory
from flatout.pipeline.read.tables.collected_columns import KnownColumn

__all__ = ["TableColumn", "TableColumns", "refuse_nulls"]


class TableColumn(Protocol):
    """Values by the place of their row; nothing that is returned lies where the column does."""

    name: str

    def __len__(self) -> int:
        """Return how many rows it has."""

    def values(self, places: torch.Tensor) -> list[Any]:
        """Return the values of samples at `places`."""

    def batch(self, places: torch.Tensor, fields: Sequence[torch.Tensor]) -> Any:
        """Return what torch's collate function makes of these; `fields`: what was gathered of records there."""


class TableColumns:
    """All columns of a table, by the place of a row.

    Attributes:
        names: of the columns.
        records: those of numbers.
    """

    def __init__(self, num_rows: int, known: Sequence[KnownColumn], arrays: Mapping[str, torch.Tensor]) -> None:
        """Take arrays that nobody changes, by place and part.

        Raises:
            ValueError: they do not fit each other.
        """
        self.names = [column.name for column in known]
        numbers = [column for column in known if column.kind.form == "numbers"]
        fields = [Field(column.kind.dtype, column.kind.shape, column.start) for column in numbers]
        self.records = Records(arrays["records"], fields)
        self._columns: list[TableColumn] = []
        for place, column in enumerate(known):
            own = {part: arrays[f"{place} {part}"] for part in column.parts}
            if column.kind.form == "numbers":
                self._columns.append(_NumberColumn(column, own, self.records, numbers.index(column)))
            else:
                self._columns.append(_OTHERS[column.kind.form](column, own))
        if {len(self.records.memory), *map(len, self._columns)} != {num_rows}:
            raise ValueError("columns of several lengths")
        self._num_bytes = sum(array.nbytes for array in arrays.values())
        self._memory, self._shared = RecycledMemory(), SharedMemory()

    @property
    def num_bytes(self) -> int:
        """Return what all columns take."""
        return self._num_bytes

    @property
    def dense(self) -> bool:
        """Return whether all columns are numbers, of one shape each, and none is null."""
        return all(isinstance(column, _NumberColumn) and column.is_dense for column in self._columns)

    def values(self, places: torch.Tensor) -> list[list[Any]]:
        """Return the values of rows, column by column."""
        return [column.values(places) for column in self._columns]

    def batch(self, places: torch.Tensor) -> dict[str, Any]:
        """Return what torch's collate function makes of rows: of numbers of one shape a tensor."""
        fields = self.records.gather(places, self._room(len(places))) if self.records.fields else []
        return {column.name: column.batch(places, fields) for column in self._columns}

    def _room(self, number: int) -> list[torch.Tensor] | None:
        """Return memory for a batch where fresh memory of the process would cost more."""
        in_a_worker = torch.utils.data.get_worker_info() is not None
        if not in_a_worker and number * self.records.record_bytes < RECYCLED_BYTES:
            return None
        memory = self._shared if in_a_worker else self._memory
        with torch.device("cpu"):
            return [memory.empty((number, *field.shape), field.dtype) for field in self.records.fields]


class _Nulls:
    """What rows of a column are null."""

    def __init__(self, name: str, valid: torch.Tensor | None) -> None:
        self._name, self.valid = name, valid

    def check(self, number: int) -> None:
        if self.valid is not None and (len(self.valid) != number or self.valid.dtype is not torch.bool):
            raise ValueError(f"column {self._name!r} has other nulls")

    def out_of(self, values: list[Any], places: torch.Tensor) -> list[Any]:
        """Return values with None for those of null rows."""
        if self.valid is None:
            return values
        valid = self.valid[places].tolist()
        return [value if there else None for value, there in zip(values, valid, strict=True)]

    def refuse(self, places: torch.Tensor) -> None:
        """Raise where a row is null, of which a tensor of the whole batch has no way to tell."""
        if self.valid is not None:
            refuse_nulls(self._name, places[~self.valid[places]].tolist(), len(places))


def refuse_nulls(name: str, null: Sequence[int], number: int) -> None:
    """Say which rows of a batch are null, if any are.

    Raises:
        BadTable: some are.
    """
    if null:
        raise BadTable(
            f"Column {name!r} is null in {len(null)} of {number} rows of a batch (row {null[0]}).",
            "A batch of tensors, or of text, has no nulls.",
            f"Leave these rows out by where=pyarrow.compute.field({name!r}).is_valid(), or give a transform= or "
            "collate_fn= that puts something in the place of None.",
        )


class _Inner:
    """What numbers of lists are null: such a list is one of Python's."""

    def __init__(self, name: str, inner: torch.Tensor | None) -> None:
        self._name, self._inner = name, inner

    def check(self, number: int) -> None:
        if self._inner is not None and (len(self._inner) != number or self._inner.dtype is not torch.bool):
            raise ValueError(f"column {self._name!r} has other nulls")

    def out_of(self, value: torch.Tensor, start: int) -> Any:
        if self._inner is None:
            return value
        there = self._inner[start : start + value.numel()]
        if bool(there.all()):
            return value
        pairs = zip(value.reshape(-1).tolist(), there.tolist(), strict=True)
        made: list[Any] = [one if known else None for one, known in pairs]
        for size in reversed(value.shape[1:]):  # of a tensor: lists within lists
            made = [made[first : first + size] for first in range(0, len(made), size)]
        return made

    @property
    def any(self) -> bool:
        return self._inner is not None


class _NumberColumn:
    """Rows of numbers of one shape, which stand in records."""

    def __init__(self, known: KnownColumn, arrays: Mapping[str, torch.Tensor], records: Records, at: int) -> None:
        self.name, self._kind, self._at = known.name, known.kind, at
        self._nulls, self._inner = _Nulls(known.name, arrays.get("valid")), _Inner(known.name, arrays.get("inner"))
        self._rows = records.rows(at)
        self._nulls.check(len(self._rows))
        self._inner.check(self._rows.numel())

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_dense(self) -> bool:
        return self._nulls.valid is None and not self._inner.any

    def values(self, places: torch.Tensor) -> list[Any]:
        rows = list(torch.index_select(self._rows, 0, places).view(self._kind.dtype).unbind(0))
        if self._inner.any:
            each = self._kind.row_items
            rows = [self._inner.out_of(row, place * each) for row, place in zip(rows, places.tolist(), strict=True)]
        return self._nulls.out_of(rows, places)

    def batch(self, places: torch.Tensor, fields: Sequence[torch.Tensor]) -> Any:
        if self._inner.any:
            return _stacked(self, places)
        self._nulls.refuse(places)
        return fields[self._at]


class _Pieces:
    """Where the content of each row begins and ends."""

    def __init__(self, name: str, ends: torch.Tensor, num_items: int) -> None:
        whole = ends.dtype is torch.int64 and ends.dim() == 1 and len(ends) > 0
        if not whole or int(ends[0]) or int(ends[-1]) != num_items:
            raise ValueError(f"column {name!r} ends elsewhere")
        self._starts, self._ends = ends[:-1], ends[1:]

    def __len__(self) -> int:
        return len(self._ends)

    def of(self, places: torch.Tensor) -> list[tuple[int, int]]:
        starts, ends = torch.index_select(self._starts, 0, places), torch.index_select(self._ends, 0, places)
        return list(zip(starts.tolist(), ends.tolist(), strict=True))


class _ListColumn:
    """Lists of numbers, each of its own length."""

    def __init__(self, known: KnownColumn, arrays: Mapping[str, torch.Tensor]) -> None:
        self.name, self._values = known.name, arrays["values"]
        if self._values.dtype is not known.kind.dtype:
            raise ValueError(f"column {known.name!r} holds other numbers")
        self._pieces = _Pieces(known.name, arrays["ends"], len(self._values))
        self._nulls, self._inner = _Nulls(known.name, arrays.get("valid")), _Inner(known.name, arrays.get("inner"))
        self._nulls.check(len(self))
        self._inner.check(len(self._values))

    def __len__(self) -> int:
        return len(self._pieces)

    def values(self, places: torch.Tensor) -> list[Any]:
        pieces, values = self._pieces.of(places), self._values
        rows: list[Any] = [values[start:end].clone() for start, end in pieces]
        if self._inner.any:
            rows = [self._inner.out_of(row, start) for row, (start, _) in zip(rows, pieces, strict=True)]
        return self._nulls.out_of(rows, places)

    def batch(self, places: torch.Tensor, _fields: Sequence[torch.Tensor]) -> Any:
        return _stacked(self, places)


class _TextColumn:
    """Text, or bytes."""

    def __init__(self, known: KnownColumn, arrays: Mapping[str, torch.Tensor]) -> None:
        self.name, self._content = known.name, arrays["values"]
        if self._content.dtype is not torch.uint8:
            raise ValueError(f"column {known.name!r} holds no bytes")
        self._pieces = _Pieces(known.name, arrays["ends"], len(self._content))
        self._nulls = _Nulls(known.name, arrays.get("valid"))
        self._nulls.check(len(self))
        self._of_bytes: Callable[[memoryview], Any] = bytes if known.kind.form == "bytes" else _decoded
        number = len(self._content)
        content = (ctypes.c_ubyte * number).from_address(self._content.data_ptr()) if number else b""
        self._memory = memoryview(content).cast("B")

    def __len__(self) -> int:
        return len(self._pieces)

    def values(self, places: torch.Tensor) -> list[Any]:
        memory, of_bytes = self._memory, self._of_bytes
        return self._nulls.out_of([of_bytes(memory[start:end]) for start, end in self._pieces.of(places)], places)

    def batch(self, places: torch.Tensor, _fields: Sequence[torch.Tensor]) -> Any:
        self._nulls.refuse(places)
        return self.values(places)


def _decoded(memory: memoryview) -> str:
    return str(memory, "utf-8")


class _ObjectColumn:
    """What is none of the others: structs, maps, lists of lists or of text, decimals."""

    def __init__(self, known: KnownColumn, arrays: Mapping[str, torch.Tensor]) -> None:
        import pyarrow as pa

        self.name, self._stream = known.name, arrays["arrow"]
        self._chunks: Sequence[Any] = []
        if len(self._stream):
            memory = pa.foreign_buffer(self._stream.data_ptr(), len(self._stream), base=self._stream)
            self._chunks = [batch.column(0) for batch in pa.ipc.open_stream(memory)]
        self._ends = torch.tensor([len(chunk) for chunk in self._chunks], dtype=torch.int64, device="cpu").cumsum(0)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def values(self, places: torch.Tensor) -> list[Any]:
        chunks = torch.searchsorted(self._ends, places, right=True)
        inside = places - torch.where(chunks > 0, self._ends[(chunks - 1).clamp_(min=0)], 0)
        pairs = zip(chunks.tolist(), inside.tolist(), strict=True)
        return [self._chunks[chunk][place].as_py() for chunk, place in pairs]

    def batch(self, places: torch.Tensor, _fields: Sequence[torch.Tensor]) -> Any:
        return _stacked(self, places)


def _stacked(column: TableColumn, places: torch.Tensor) -> Any:
    values = column.values(places)
    null = [place for place, value in zip(places.tolist(), values, strict=True) if value is None]
    refuse_nulls(column.name, null, len(values))
    return torch.utils.data.default_collate(values)


_OTHERS: dict[str, Callable[[KnownColumn, Mapping[str, torch.Tensor]], TableColumn]] = {
    "lists": _ListColumn,
    "text": _TextColumn,
    "bytes": _TextColumn,
    "objects": _ObjectColumn,
}
