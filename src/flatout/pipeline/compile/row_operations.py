"""What makes one part of several batches of rows, where they lie, in one call."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from flatout.native.multi_batch import Write, copying

__all__ = ["TORCHS_BYTES", "MakeOne", "RowOperation", "copied_from"]

TORCHS_BYTES = 128 * 1024
"""From this size on what threads write that torch has, and which wait for work: 200 KB are looked up in 11 to 13 us on
two of them, in 15 to 17 on one (n=6 medians of 15 times 938 batches, 2 cores of an AMD EPYC)."""

MakeOne = Callable[[torch.Tensor], torch.Tensor]
"""From places of rows (int64, of the CPU) to the part of their batch."""


@dataclass(frozen=True, slots=True)
class RowOperation:
    """What makes one part of several batches.

    Attributes:
        new: memory for so many rows.
        write: fills such memory of several batches.
        num_bytes: of what becomes of one row, or of the row, if that is more.
        seen: what a batch looks like, of its memory; None for that as it is.
    """

    new: Callable[[int], torch.Tensor]
    write: Write
    num_bytes: int
    seen: Callable[[torch.Tensor], torch.Tensor] | None = None

    def several(self, places: torch.Tensor, size: int) -> list[torch.Tensor]:
        """Return the part of batches of so many rows each but the last; `places`: contiguous, at least one batch."""
        number = len(places)
        batches = [self.new(size)]
        batches += [torch.empty_like(batches[0]) for _ in range(number // size - 1)]  # in half the time of `new`
        if number % size:
            batches[number // size :] = [self.new(number % size)]
        few = number * self.num_bytes < TORCHS_BYTES
        self.write(places, batches, size, 1 if few else torch.get_num_threads())
        return batches if self.seen is None else [self.seen(batch) for batch in batches]


def copied_from(rows: torch.Tensor | None) -> RowOperation | None:
    """Return what copies rows; None where they do not lie one after the other in the CPU's memory."""
    if rows is None or rows.device.type != "cpu":
        return None
    plain = torch.empty_like(rows, device="meta", memory_format=torch.contiguous_format)
    write = copying(rows) if rows.stride() == plain.stride() else None
    if write is None:
        return None
    shape, dtype = rows.shape[1:], rows.dtype
    return RowOperation(
        lambda number: torch.empty((number, *shape), dtype=dtype, device="cpu"),
        write,
        rows[:1].nbytes,
    )
