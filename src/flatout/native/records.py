"""Records: the values of a row beside one another in memory, so that a batch of rows costs one way through memory.

Rows from all over a table wait for memory, once for each place where something of a row lies: a batch of 1024 rows of 8
columns takes a quarter of the time where a row lies in one place.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from flatout.native.native import compiled

__all__ = ["SIGNED", "Field", "Records", "laid_out"]

SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""What stands for types that torch does not gather."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value of each record: a tensor of `shape`, or a number, `start` bytes from where the record begins."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int = 0

    @property
    def num_bytes(self) -> int:
        """Return the bytes of the value."""
        return self.dtype.itemsize * math.prod(self.shape)


def laid_out(fields: Sequence[Field]) -> tuple[tuple[Field, ...], int]:
    """Return fields where they stand in a record, each on a multiple of its numbers' size, and the record's bytes."""
    start, placed = 0, {}
    for at in sorted(range(len(fields)), key=lambda at: -fields[at].dtype.itemsize):
        placed[at] = Field(fields[at].dtype, fields[at].shape, start)
        start += fields[at].num_bytes
    widest = max((field.dtype.itemsize for field in fields), default=1)
    return tuple(placed[at] for at in range(len(fields))), -(-start // widest) * widest


class Records:
    """Records in memory, one after the other."""

    def __init__(self, memory: torch.Tensor, fields: Sequence[Field]) -> None:
        """Take records as rows of bytes, contiguous.

        Raises:
            ValueError: the fields do not lie within a record of that size.
        """
        plain = memory.dim() == 2 and memory.dtype is torch.uint8 and memory.is_contiguous()
        if not plain or any(field.start + field.num_bytes > memory.shape[1] for field in fields):
            raise ValueError("these are no records")
        self.memory, self.fields = memory, tuple(fields)
        self._table = array("q", [number for field in fields for number in (field.start, field.num_bytes)])
        self._rows = [self.rows(at) for at in range(len(fields))]
        self._like: list[torch.Tensor] = []  # a batch: another is made in half the time where there is one

    @property
    def record_bytes(self) -> int:
        """Return the size of one record."""
        return self.memory.shape[1]

    def rows(self, at: int) -> torch.Tensor:
        """Return one field of all records where it lies; of unsigned numbers their bits, as signed ones."""
        field = self.fields[at]
        inside = self.memory[:, field.start : field.start + field.num_bytes]
        dtype = SIGNED.get(field.dtype, field.dtype)
        if not field.num_bytes or not len(inside):
            return torch.empty((len(self.memory), *field.shape), dtype=dtype, device="cpu")
        return inside.view(dtype).view(len(inside), *field.shape)

    def gather(self, places: torch.Tensor, into: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """Return the fields of the records at `places` (int64), each in memory of its own, or in `into`.

        Raises:
            IndexError: there is no such record.
        """
        size, places = len(places), _as_places(places)
        made = self._new(size) if into is None else list(into)
        if compiled is None:
            for rows, out in zip(self._rows, made, strict=True):
                torch.index_select(rows, 0, places, out=out.view(rows.dtype))
        else:
            self._copy(places, size, [made])
        return made

    def several(self, places: torch.Tensor, size: int) -> list[list[torch.Tensor]]:
        """Return the fields of batches of `size` records each but the last."""
        places = _as_places(places)
        if compiled is None:
            return [self.gather(some) for some in places.split(size)]
        made = [self._new(min(size, len(places) - start)) for start in range(0, len(places), size)]
        self._copy(places, size, made)
        return made

    def write(self, start: int, columns: Sequence[torch.Tensor]) -> None:
        """Write the fields of some records from the place `start` on; each of `columns` is contiguous."""
        number = len(columns[0]) if columns else 0
        if compiled is None:
            for rows, column in zip(self._rows, columns, strict=True):
                rows[start : start + number] = column.view(rows.dtype).view(number, *rows.shape[1:])
            return
        if not number:
            return
        lie = array("q", [column.data_ptr() for column in columns])
        compiled.records(
            self.memory.data_ptr() + start * self.record_bytes, self.record_bytes, len(self.memory), 0, number, 1,
            self._table.buffer_info()[0], len(self.fields), lie.buffer_info()[0],
        )  # fmt: skip

    def _new(self, number: int) -> list[torch.Tensor]:
        like = self._like
        if not like or len(like[0]) != number:
            like = [torch.empty((number, *field.shape), dtype=field.dtype, device="cpu") for field in self.fields]
            self._like = like
        return [torch.empty_like(one) for one in like]

    def _copy(self, places: torch.Tensor, size: int, batches: Sequence[Sequence[torch.Tensor]]) -> None:
        assert compiled is not None
        lie = array("q", [part.data_ptr() for parts in batches for part in parts])
        compiled.records(
            self.memory.data_ptr(), self.record_bytes, len(self.memory), places.data_ptr(), len(places), max(1, size),
            self._table.buffer_info()[0], len(self.fields), lie.buffer_info()[0],
        )  # fmt: skip


def _as_places(places: torch.Tensor) -> torch.Tensor:
    return places.to(device="cpu", dtype=torch.int64).contiguous()
