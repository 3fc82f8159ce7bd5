"""The strides that `default_collate` gives, so that a batch of ours does not differ from it in them."""

import math

import torch
from torch import Tensor

from flatout.pipeline.compile.kernels.core.kernel import Unsuited

__all__ = ["collated", "usual_strides"]


def usual_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a new tensor of this shape."""
    return tuple(max(1, math.prod(max(1, size) for size in shape[axis + 1 :])) for axis in range(len(shape)))


def collated(batch: Tensor) -> Tensor:
    """Return the batch with the strides that stacking its rows gives; a view where the bytes already lie so.

    Rows of up to three axes are always stacked plainly; of more only those are known that lie so already.
    """
    usual = usual_strides(tuple(batch.shape))
    if batch.stride() == usual:
        return batch
    if batch.dim() > 4:
        raise Unsuited(f"rows of {batch.dim() - 1} axes whose order in memory decides on that of the batch")
    if batch.is_contiguous():  # only the strides of axes of length 1 differ
        return batch.as_strided(batch.shape, usual)
    return batch.clone(memory_format=torch.contiguous_format)
