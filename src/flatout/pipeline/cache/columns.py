"""The rows of one part of all samples, or its values: written and gathered by index."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from flatout.native.recycled_memory import RECYCLED_BYTES, RecycledMemory
from flatout.pipeline.cache.batch_layout import Rows
from flatout.pipeline.cache.packed import Packed, pack
from flatout.pipeline.cache.prefaulted_memory import populate
from flatout.pipeline.cache.row_view import RowView

__all__ = ["Column", "DeviceColumn", "stored"]

_WIDTHS = (torch.complex128, torch.int64, torch.int32, torch.int16, torch.uint8)  # nothing is computed with them


class Column:
    """The rows of one part, in the CPU's memory, or its values."""

    def __init__(
        self, rows: Rows, num_samples: int, memory: torch.Tensor | None = None, packed: Packed | None = None
    ) -> None:
        """Make room for `num_samples` rows in `memory` (uint8), or in some of its own; `packed`: values, all there."""
        self._to_memory = rows.axes if rows.axes != tuple(range(len(rows.axes))) else None
        self._back = _inverse(rows.axes)
        self._packed = packed
        self._recycled = RecycledMemory()
        self._values: list[Any] | None = None
        self._lines: Any = None  # of the tensor, once they are written to
        if rows.dtype is None:
            self._values = [None] * num_samples if packed is None else []
        else:
            shape = rows.in_memory(num_samples)
            self._row_bytes = rows.num_bytes
            if memory is None:
                self._tensor = torch.empty(shape, dtype=rows.dtype)
            else:
                self._tensor = memory[: num_samples * rows.num_bytes].view(rows.dtype).view(shape)

    def write(self, indices: torch.Tensor | slice, part: Any) -> None:
        """Keep `part`, a tensor of rows or a list of values, for the samples `indices`."""
        if self._values is not None:
            if isinstance(indices, slice):
                self._values[indices] = part
                return
            for index, value in zip(indices.tolist(), part, strict=True):
                self._values[index] = value
            return
        rows = part if self._to_memory is None else part.permute(self._to_memory)
        if isinstance(indices, slice):
            self._tensor[indices] = rows
        elif self._tensor.device.type != "cpu":
            self._tensor.index_copy_(0, indices.to(self._tensor.device), rows.to(self._tensor.device))
        elif rows.numel():
            if self._lines is None:
                self._lines = _as_bytes(self._tensor)
            self._lines[indices.numpy()] = _as_bytes(rows)

    def populate(self) -> None:
        """Have the memory there before it is written to."""
        if self._values is None:
            populate(self._tensor)

    def repeat(self, indices: torch.Tensor) -> None:
        """Write what is there of `indices` to every place, over and over."""
        if self._values is not None:
            known = [self._values[index] for index in indices.tolist()]
            self._values[:] = (known * (len(self._values) // len(known) + 1))[: len(self._values)]
            return
        known_rows, length = self._tensor[indices], len(self._tensor)
        for start in range(0, length, len(known_rows)):
            self._tensor[start : start + len(known_rows)] = known_rows[: length - start]

    def read(self, indices: torch.Tensor, places: torch.Tensor) -> Any:
        """Return the rows or values of `indices`, in memory of their own; `places` are these, where the rows are."""
        if self._packed is not None:
            return self._packed.values(indices)
        if self._values is not None:
            return [self._values[index] for index in indices.tolist()]
        rows = self._gathered(places)
        return rows if self._to_memory is None else rows.permute(self._back)

    def reader(self) -> Callable[[torch.Tensor], Any]:
        """Return what does as `read`."""
        if self._packed is not None or self._values is not None or self._to_memory is not None:
            return lambda places: self.read(places, places)
        select, tensor, few = torch.index_select, self._tensor, RECYCLED_BYTES // max(1, self._row_bytes)
        return lambda places: select(tensor, 0, places) if places.numel() < few else self._gathered(places)

    def chosen(self, indices: torch.Tensor) -> Any:
        """Return rows where they lie; values that are no rows, and rows on a device, as `read` does."""
        rows = self.lying()
        if rows is None:
            return self.read(indices, indices)
        return RowView(rows, indices.contiguous(), lambda places: self.read(places, places))

    def lying(self) -> torch.Tensor | None:
        """Return all rows where they lie; None for values that are no rows, and for rows on a device."""
        if self._packed is not None or self._values is not None or self._tensor.device.type != "cpu":
            return None
        return self._tensor if self._to_memory is None else self._tensor.permute(self._back)

    def _gathered(self, places: torch.Tensor) -> torch.Tensor:
        num_bytes = places.numel() * self._row_bytes
        if num_bytes < RECYCLED_BYTES or self._tensor.device.type != "cpu":
            return torch.index_select(self._tensor, 0, places)
        rows = self._recycled.empty((places.numel(), *self._tensor.shape[1:]), self._tensor.dtype)
        return torch.index_select(self._tensor, 0, places, out=rows)

    def arrays(
        self, name: str, pause: Callable[[], None], room: Callable[[int], torch.Tensor | None]
    ) -> dict[str, torch.Tensor]:
        """Return what is kept as arrays; `pause` and `room` as in `Store.arrays`."""
        if self._values is None:
            return {name: self._tensor}
        content, ends = pack(self._values, pause, room)
        return {f"{name} content": content, f"{name} ends": ends}


class DeviceColumn(Column):
    """The rows of one part in a device's memory: what is gathered from there is no view of anything."""

    _wide: torch.Tensor | None = None  # rows as numbers of up to 16 bytes: a device reads these faster

    def read(self, indices: torch.Tensor, places: torch.Tensor) -> Any:
        """Do as `Column.read`; rows come in a tensor that is no view of another."""
        if self._values is not None or not self._row_bytes:
            return super().read(indices, places)
        if self._wide is None:
            self._wide = _as_wide(self._tensor)
        size = (places.numel(), *self._tensor.shape[1:])
        if self._to_memory is None:
            rows = lying = torch.empty(size, dtype=self._tensor.dtype, device=self._tensor.device)
        else:
            shape = [size[at] for at in self._back]
            rows = torch.empty_permuted(shape, self._to_memory, dtype=self._tensor.dtype, device=self._tensor.device)
            lying = rows.permute(self._to_memory)
        torch.index_select(self._wide, 0, places, out=_as_wide(lying, self._wide.dtype))
        return rows


def _as_wide(rows: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return contiguous rows, of one byte at least, as lines of `dtype`, or of the widest that they can be read as."""
    length = math.prod(rows.shape[1:])
    each, start = length * rows.itemsize, rows.data_ptr()
    fitting = dtype or next(one for one in _WIDTHS if not (each % one.itemsize or start % one.itemsize))
    return rows.view(len(rows), length).view(fitting)


def _as_bytes(rows: torch.Tensor) -> Any:
    """Return rows as a NumPy array of bytes, one line a row: where they lie, if they are contiguous.

    NumPy copies whole lines: 64 of 150 KB in 0.7 ms, where torch's `index_copy_` of bytes takes 7.9 ms (one core of an
    AMD EPYC, torch 2.13, numpy 2.4, mean of 63). Each call of torch gives the interpreter's lock up, for which many
    threads may wait: it is called only for what NumPy does not know.
    """
    try:
        return rows.numpy().reshape(len(rows), -1).view("u1")
    except (RuntimeError, TypeError):  # numbers of 16 bits, or conjugated; of NumPy there is no other way to ask
        plain = rows.detach().resolve_conj().resolve_neg().contiguous()
        return plain.flatten().view(torch.uint8).view(len(rows), -1).numpy()


def _inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(range(len(axes)), key=lambda place: axes[place]))


def stored(rows: Rows, num_samples: int, arrays: Mapping[str, torch.Tensor], name: str) -> Column:
    """Return what is kept in the arrays called `name`.

    Raises:
        ValueError: they are not of these rows.
    """
    if rows.dtype is None:
        content, ends = arrays.get(f"{name} content"), arrays.get(f"{name} ends")
        if content is not None and ends is not None and len(ends) == num_samples:
            return Column(rows, num_samples, packed=Packed(content, ends))
    else:
        tensor = arrays.get(name)
        if tensor is not None and tensor.dtype is rows.dtype and tensor.shape == rows.in_memory(num_samples):
            column = Column(rows, 0)
            column._tensor = tensor
            return column
    raise ValueError("the arrays are not those of these rows")
