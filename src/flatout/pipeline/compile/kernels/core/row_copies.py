"""Rows of a batch: some of them taken out, put back, or cut to windows, at the speed of plain copies.

Images of [B, H, W, C] lie in memory either as that or with the channels first; kernels keep the order that they meet.
"""

from typing import Any

import torch
from torch import Tensor

from flatout.native.pixels import channels_lead
from flatout.pipeline.compile.kernels.core.kernel import Unsuited

__all__ = ["new_images", "put", "taken", "windows"]


def new_images(batch: Tensor, height: int, width: int) -> Tensor:
    """Return an uninitialized batch of images of another size, with the channels where `batch` has them."""
    if channels_lead(batch):
        return batch.new_empty((len(batch), batch.shape[3], height, width)).permute(0, 2, 3, 1)
    return batch.new_empty((len(batch), height, width, *batch.shape[3:]))


def taken(batch: Tensor, chosen: Tensor) -> Tensor:
    """Return the chosen rows; torch's indexing with a list takes 15 times as long on bytes."""
    if channels_lead(batch):
        return batch.permute(0, 3, 1, 2).index_select(0, chosen).permute(0, 2, 3, 1)
    return batch.index_select(0, chosen)


def put(batch: Tensor, chosen: Tensor, rows: Tensor) -> None:
    """Write rows to their places in a batch."""
    target, source = _arrays(batch, rows)
    for number, place in enumerate(chosen.tolist()):
        target[place] = source[number]


def windows(batch: Tensor, axis: int, tops: Tensor, lefts: Tensor, size: tuple[int, int]) -> Tensor:
    """Return one window of each sample, all of the same size; `axis` is that of the rows, the next that of columns."""
    if channels_lead(batch) and axis == 1:
        return windows(batch.permute(0, 3, 1, 2), 2, tops, lefts, size).permute(0, 2, 3, 1)
    height, width = size
    out = batch.new_empty((*batch.shape[:axis], height, width, *batch.shape[axis + 2 :]))
    target, source = _arrays(out, batch)
    leading: Any = (slice(None),) * (axis - 1)
    for number, (top, left) in enumerate(zip(tops.tolist(), lefts.tolist(), strict=True)):  # 1 us a window
        place: Any = (*leading, slice(top, top + height), slice(left, left + width))
        target[number] = source[number][place]
    return out


def _arrays(*batches: Tensor) -> list[Any]:
    """Return numpy's view of each; a type that numpy lacks is seen as its bits."""
    if any(batch.device.type != "cpu" for batch in batches):
        raise Unsuited("rows are copied on the processor")
    return [(batch.view(torch.int16) if batch.dtype is torch.bfloat16 else batch).numpy() for batch in batches]
