"""Pillow on batches of pixels: one image after the other, or all of them as one tall image."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flatout.native.pixels import image_of, write_pixels
from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.parallel import in_parallel

__all__ = ["converted", "for_each", "mode_of", "one_by_one"]

_PAYS_BYTES = 16 * 1024  # that Pillow makes of one image while another thread has the interpreter's lock


def mode_of(batch: Tensor) -> str:
    """Return the mode of the images in a batch of [B, H, W] or [B, H, W, 3] bytes."""
    if batch.dtype is not torch.uint8 or batch.device.type != "cpu" or batch.dim() not in (3, 4):
        raise Unsuited(f"not a batch of images: {batch.dtype} of {tuple(batch.shape)} on {batch.device}")
    return "L" if batch.dim() == 3 else "RGB"


def one_by_one(batch: Tensor, out: Tensor, change: Callable[[Any, int], Any]) -> None:
    """Write the pixels of `change(image, number)` of every row into the same row of `out`, a contiguous batch."""
    mode = mode_of(batch)
    rows = batch.contiguous().numpy()

    def one(number: int) -> None:
        write_pixels(change(image_of(rows[number], mode), number), out[number])

    for_each(one, len(batch), out[:1].numel())


def for_each(one: Callable[[int], None], number: int, num_bytes: int) -> None:
    """Do `one` for each number below `number`; on several threads where each writes enough bytes for that to pay."""
    for _ in in_parallel(one, number) if num_bytes >= _PAYS_BYTES else map(one, range(number)):
        pass


def converted(batch: Tensor, source: str, target: str) -> Tensor:
    """Return the batch in another mode; what Pillow does to a pixel alone it does to a tall image of all rows."""
    out = torch.empty((*batch.shape[:3], 3) if len(target) == 3 else batch.shape[:3], dtype=torch.uint8)
    if out.numel():
        tall = image_of(batch.contiguous().flatten(0, 1).numpy(), source).convert(target)
        write_pixels(tall, out.flatten(0, 1))
    return out
