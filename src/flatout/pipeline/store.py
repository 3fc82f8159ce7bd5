"""Rows of samples kept in memory or in a mapped file, filled as they are first delivered, gathered by index."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from flatout.pipeline.chosen import Chosen, Written
from flatout.pipeline.filled import Filled
from flatout.pipeline.layout import Rows
from flatout.pipeline.order import as_tensor
from flatout.pipeline.packed import Packed, pack
from flatout.pipeline.populated import populate
from flatout.pipeline.recycled import RECYCLED_BYTES, Recycled

__all__ = ["Store", "mapped_bytes"]

_ALIGNED = 4096

_Send = Callable[[torch.Tensor], torch.Tensor]


class Store:
    """One row a sample for each part of a batch.

    Memory of its own is taken from the first row on, by a thread ahead of who writes: an empty store takes none.
    """

    def __init__(
        self,
        rows: Sequence[Rows],
        num_samples: int,
        memory: torch.Tensor | None = None,
        send: _Send | None = None,
        flags: torch.Tensor | None = None,
    ) -> None:
        """Make room for `num_samples`, in `memory` (uint8, shape (`mapped_bytes`,)) where it is given.

        `send` brings indices to the device that the memory is on; `flags` (uint8, shape (num_samples,)) tell other
        ranks that share the memory what is there.
        """
        self._send = send
        self.rows = tuple(rows)
        self.num_samples = num_samples
        self._turn = 0
        self._fresh = memory is None  # and not written to
        self.filled = Filled(num_samples, flags)
        self._columns: list[_Column] = []
        start = 0
        for each in self.rows:
            end = start + mapped_bytes([each], num_samples)
            place = None if memory is None or each.dtype is None else memory[start:end]
            self._columns.append(_Column(each, num_samples, place))
            start = end

    @classmethod
    def of(cls, rows: Sequence[Rows], num_samples: int, arrays: Mapping[str, torch.Tensor]) -> "Store":
        """Return a store in which all samples are: in `arrays`, as `arrays()` gave them.

        Raises:
            ValueError: they are not of these rows.
        """
        made = cls(rows, 0)
        made.num_samples, made.filled, made._fresh = num_samples, Filled.all_of(num_samples), False
        made._columns = [_stored(each, num_samples, arrays, str(place)) for place, each in enumerate(made.rows)]
        return made

    @property
    def num_filled(self) -> int:
        """Return how many samples are there."""
        return self.filled.number

    @property
    def num_bytes(self) -> int:
        """Return the bytes that it takes when it is full."""
        return self.num_samples * sum(rows.num_bytes for rows in self.rows)

    def missing(self, indices: torch.Tensor) -> torch.Tensor:
        """Return those of `indices` that are not there, each once, in their order."""
        if self.full:
            return indices[:0]
        lacking = self.filled.lacking(indices)
        wanted = dict.fromkeys(lacking.tolist())
        return lacking if len(wanted) == len(lacking) else as_tensor(wanted)

    @property
    def full(self) -> bool:
        """Return whether every sample is there."""
        return self.filled.whole

    def some_filled(self, number: int) -> list[int]:
        """Return up to `number` samples that are there, others each time."""
        self._turn += 1
        return self.filled.some(number, self._turn)

    def fill(self, indices: torch.Tensor | slice, parts: Sequence[Any]) -> None:
        """Keep the rows of a batch: `parts` as `layout_of` gives them, for the samples `indices`.

        A slice stands for samples that follow each other, none of which is there.
        """
        if self._fresh:
            self._populate()
        for column, part in zip(self._columns, parts, strict=True):
            if not isinstance(part, Written):
                column.write(indices, part)
        if isinstance(indices, slice):
            self.filled.add_from(indices.start, indices.stop - indices.start)
        else:
            self.filled.add(indices)

    def into(self, indices: torch.Tensor, place: int) -> Chosen | None:
        """Return where part `place` of the samples `indices` belongs; None where it is no row in the CPU's memory."""
        if self._fresh:
            self._populate()
        chosen = self._columns[place].chosen(indices) if self._send is None else None
        return chosen if isinstance(chosen, Chosen) else None

    def _populate(self) -> None:
        self._fresh = False
        for column in self._columns:
            column.populate()

    def repeat(self, indices: torch.Tensor) -> None:
        """Write the rows of `indices`, which are there, to every place: each then costs what it will cost."""
        self._wait()
        for column in self._columns:
            column.repeat(indices)
        self._wait()
        self.filled.all()

    def _wait(self) -> None:
        """Wait for whatever a device does with the memory, on any of its streams."""
        if self._send is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def take(self, indices: torch.Tensor, lying: int | None = None) -> list[Any]:
        """Return the parts of the samples `indices`, in memory of their own, but for part `lying`: where it lies."""
        places = indices if self._send is None else self._send(indices)
        return [
            column.chosen(indices) if place == lying and self._send is None else column.read(indices, places)
            for place, column in enumerate(self._columns)
        ]

    @property
    def reads(self) -> list[Callable[[torch.Tensor], Any]] | None:
        """Return what reads each part of the samples that it is given, None where a device holds them."""
        return None if self._send is not None else [column.reader() for column in self._columns]

    @property
    def lying(self) -> list[torch.Tensor | None]:
        """Return for each part all rows where they lie; None where they are no rows, or a device holds them."""
        return [None if self._send is not None else column.lying() for column in self._columns]

    def arrays(self, pause: Callable[[], None], room: Callable[[int], torch.Tensor | None]) -> dict[str, torch.Tensor]:
        """Return all rows as arrays by name; `pause` and `room` are for values that are laid out for that.

        Raises:
            ValueError: there are values that cannot be laid out, or no room.
        """
        found: dict[str, torch.Tensor] = {}
        for place, column in enumerate(self._columns):
            found |= column.arrays(str(place), pause, room)
        return found


class _Column:
    """The rows of one part."""

    def __init__(
        self, rows: Rows, num_samples: int, memory: torch.Tensor | None = None, packed: Packed | None = None
    ) -> None:
        self._to_memory = rows.axes if rows.axes != tuple(range(len(rows.axes))) else None
        self._back = _inverse(rows.axes)
        self._packed = packed
        self._recycled = Recycled()
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
        if self._values is None:
            populate(self._tensor)

    def repeat(self, indices: torch.Tensor) -> None:
        if self._values is not None:
            known = [self._values[index] for index in indices.tolist()]
            self._values[:] = (known * (len(self._values) // len(known) + 1))[: len(self._values)]
            return
        known_rows, length = self._tensor[indices], len(self._tensor)
        for start in range(0, length, len(known_rows)):
            self._tensor[start : start + len(known_rows)] = known_rows[: length - start]

    def read(self, indices: torch.Tensor, places: torch.Tensor) -> Any:
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
        return Chosen(rows, indices.contiguous(), lambda places: self.read(places, places))

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
        if self._values is None:
            return {name: self._tensor}
        content, ends = pack(self._values, pause, room)
        return {f"{name} content": content, f"{name} ends": ends}


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


def _stored(rows: Rows, num_samples: int, arrays: Mapping[str, torch.Tensor], name: str) -> _Column:
    if rows.dtype is None:
        content, ends = arrays.get(f"{name} content"), arrays.get(f"{name} ends")
        if content is not None and ends is not None and len(ends) == num_samples:
            return _Column(rows, num_samples, packed=Packed(content, ends))
    else:
        tensor = arrays.get(name)
        if tensor is not None and tensor.dtype is rows.dtype and tensor.shape == rows.in_memory(num_samples):
            column = _Column(rows, 0)
            column._tensor = tensor
            return column
    raise ValueError("the arrays are not those of these rows")


def mapped_bytes(rows: Sequence[Rows], num_samples: int) -> int:
    """Return the bytes of memory that a store of `num_samples` needs for its tensors."""
    return sum(-(-num_samples * each.num_bytes // _ALIGNED) * _ALIGNED for each in rows if each.dtype is not None)
