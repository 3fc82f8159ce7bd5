"""Rows written to the memory of several batches in one call: copied, or as operations make them."""

import os
import threading
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatout.native.native import Encoded, compiled

__all__ = ["MultiBatchWrite", "Write", "copying", "summed", "torchs_wait"]

Write = Callable[[Tensor, Sequence[Tensor], int, int], None]
"""Of places of rows (int64, contiguous), new batches, the rows of each but the last, and threads: fills the batches."""

_COPY, _SUM = 4, 5  # as in native.c
_MOST_BYTES = 2**31 - 1  # of a row
_begun: set[int] = set()  # processes in which torch's threads made batches


@dataclass(frozen=True, slots=True, eq=False)
class MultiBatchWrite:
    """Fills batches by operations on images.

    Attributes:
        encoded: which operations and images.
        out_bytes: of what becomes of one image.
        held: what else has memory that `encoded` has addresses of.
        images: the images, whose memory may be moved.
    """

    encoded: Encoded
    out_bytes: int
    images: Tensor
    held: object

    def __call__(self, places: Tensor, batches: Sequence[Tensor], each: int, threads: int) -> None:
        """Do as `Write` says; raise IndexError where a place is none of an image, ValueError where they were moved."""
        assert compiled is not None
        if threads > 1:
            _begun.add(os.getpid())
        if self.images.data_ptr() != self.encoded[2]:
            raise ValueError("the images lie elsewhere by now")
        addresses, number = array("q", [batch.data_ptr() for batch in batches]), len(places)
        compiled.operate(
            *self.encoded, places.data_ptr(), 0, number, addresses.buffer_info()[0], self.out_bytes, number, 0, each,
            threads, True,
        )  # fmt: skip


def copying(rows: Tensor) -> Write | None:
    """Return what copies `rows` to batches; None where they do not lie one after the other, or nothing is compiled."""
    if compiled is None or not rows.is_contiguous() or not 0 < rows[:1].nbytes <= _MOST_BYTES:
        return None
    table, row_bytes = torch.tensor([(_COPY, *[0] * 7)], device="cpu"), rows[:1].nbytes
    return MultiBatchWrite(
        (table.data_ptr(), 1, rows.data_ptr(), 1, row_bytes, 1, 0, len(rows)), row_bytes, rows, table
    )


def summed(blocks: Any, sums: Any) -> bool:
    """Write the sum of each block's words, wrapped round, to `sums`; return whether there is compiled code for it.

    Args:
        blocks: NumPy's uint64, [B, N]; words of a block lie one after the other, blocks evenly spaced.
        sums: NumPy's uint64, [B], contiguous.
    """
    number, words = blocks.shape
    if compiled is None or not number or 8 * words > _MOST_BYTES or blocks.strides[0] % (8 * words):
        return False
    step, table = blocks.strides[0] // (8 * words), array("q", (_SUM, *[0] * 7))
    rows = array("q", range(0, number * step, step)) if step > 1 else None
    compiled.operate(
        table.buffer_info()[0], 1, blocks.ctypes.data, 1, 8 * words, 1, 0, (number - 1) * step + 1,
        0 if rows is None else rows.buffer_info()[0], 0, number, sums.ctypes.data, 8, number, 0, 0,
        torch.get_num_threads(), torchs_wait(begin=False),
    )  # fmt: skip
    return True


def torchs_wait(*, begin: bool = True) -> bool:
    """Return whether torch's threads are there for work of this thread; another one of Python would have its own.

    `begin`: they may be begun for it. Without it, only where batches were made on them before: a process that is forked
    when they are there cannot use several threads of torch, and the script may fork before it makes a batch.
    """
    if torch.get_num_threads() < 2 or threading.current_thread() is not threading.main_thread():
        return False
    if begin:
        _begun.add(os.getpid())
    return os.getpid() in _begun
