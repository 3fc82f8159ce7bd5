"""Several kernels as one that walks the batch in pieces small enough to stay in the processor's cache."""

from collections.abc import Sequence

import torch
from torch import Tensor

from flatout.native import native
from flatout.native.recycled_memory import RecycledMemory
from flatout.pipeline.compile.byte_table import looked_up
from flatout.pipeline.compile.kernels.core.kernel import Kernel
from flatout.pipeline.compile.kernels.core.strides import collated
from flatout.pipeline.compile.pointwise_table import num_pointwise

__all__ = ["fuse"]

_FROM_IMAGES = ("ToTensor", "PILToTensor", "ToImage")
_PIECE_BYTES = 512 * 1024  # of the result; a quarter to a half of a core's second-level cache


def fuse(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return kernels that do the same with one buffer for the last of them, filled piece by piece.

    From the last kernel that can write into a buffer on, those after it work in that buffer; those before it work on
    one piece at a time. What cannot be joined is left as it is.
    """
    kernels = list(kernels)
    number = num_pointwise(kernels)
    if native.available() and number and kernels[-number].name in _FROM_IMAGES:
        joined = _join(kernels[-number:])
        if len(joined) == 1 and (joined[0].run_into is not None or joined[0].view is not None):
            return [*kernels[:-number], looked_up(kernels[-number:], joined[0])]
    return _join(kernels)


def _join(kernels: list[Kernel]) -> list[Kernel]:
    last = len(kernels) - 1
    while last >= 0 and kernels[last].in_place is not None and kernels[last].run_into is None:
        last -= 1
    if len(kernels) < 2 or last < 0 or kernels[last].run_into is None:
        return kernels
    return [_fused(kernels[:last], kernels[last], kernels[last + 1 :])]


def _fused(before: Sequence[Kernel], writer: Kernel, after: Sequence[Kernel]) -> Kernel:
    """Return the kernel that makes pieces, writes each into its place and finishes it there."""
    every = (*before, writer, *after)
    rows: dict[tuple[object, ...], Tensor] = {}  # one of the result for each kind of batch
    recycled = RecycledMemory()

    def run_into(batch: Tensor, out: Tensor) -> None:
        piece = max(1, _PIECE_BYTES // max(1, out[:1].numel() * out.element_size()))
        for start in range(0, len(batch), piece):
            _piece(before, writer, after, batch[start : start + piece], out[start : start + piece])

    def run(batch: Tensor) -> Tensor:
        if not len(batch):
            return _one_after_the_other(every, batch)
        kind = (batch.shape[1:], batch.dtype, batch.device, torch.get_default_dtype())
        if kind not in rows:
            rows[kind] = _one_after_the_other(every, batch[:1])
        row = rows[kind]
        if row.stride() != collated(row).stride():
            return _one_after_the_other(every, batch)
        shape = (len(batch), *row.shape[1:])
        out = recycled.empty(shape, row.dtype) if row.device.type == "cpu" else row.new_empty(shape)
        run_into(batch, out)
        return out

    return Kernel(" + ".join(kernel.name for kernel in every), every[-1].after, run, run_into)


def _piece(before: Sequence[Kernel], writer: Kernel, after: Sequence[Kernel], made: Tensor, into: Tensor) -> None:
    for kernel in before:
        made = (kernel.view or kernel.run)(made)
    assert writer.run_into is not None
    writer.run_into(made, into)
    for kernel in after:
        assert kernel.in_place is not None
        kernel.in_place(into)


def _one_after_the_other(kernels: Sequence[Kernel], batch: Tensor) -> Tensor:
    for kernel in kernels:
        batch = kernel.run(batch)
    return batch
