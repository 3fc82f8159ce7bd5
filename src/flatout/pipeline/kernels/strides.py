"""The strides that `default_collate` gives, so that a batch of ours does not differ from it in them."""

import math

import torch
from torch import Tensor

__all__ = ["collated", "usual_strides"]


def usual_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a new tensor of this shape."""
    return tuple(max(1, math.prod(max(1, size) for size in shape[axis + 1 :])) for axis in range(len(shape)))


def collated(batch: Tensor) -> Tensor:
    """Return the batch with the strides that stacking its rows gives; a view where the bytes already lie so.

    Rows of four axes that lie in memory with the channels last keep that order; all others are contiguous.
    """
    if batch.dim() == 5 and _channels_last(batch[0]):
        return batch.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    usual = usual_strides(tuple(batch.shape))
    if batch.stride() == usual:
        return batch
    if batch.is_contiguous():  # only the strides of axes of length 1 differ
        return batch.as_strided(batch.shape, usual)
    return batch.clone(memory_format=torch.contiguous_format)


def _channels_last(row: Tensor) -> bool:
    return row.is_contiguous(memory_format=torch.channels_last) and not row.is_contiguous()
