"""`Resize`."""

from typing import Any

import torch
from torch import Tensor

from flatout.native import native
from flatout.native.operation import Operation
from flatout.pipeline.compile.kernels.convert import as_it_is
from flatout.pipeline.compile.kernels.core.kernel import Kernel, Params, Unsuited
from flatout.pipeline.compile.kernels.core.original import is_v2, pillow_filter
from flatout.pipeline.compile.kernels.core.resample import resample
from flatout.pipeline.compile.kernels.core.whole_batch import whole
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["resize", "resized"]


def resize(operation: Any, form: SampleForm) -> Kernel | None:
    """Return the kernel of `Resize`; on images only where Pillow gives no warning of its own."""
    if form.kind == "array":
        return as_it_is(operation, form) if is_v2(operation) else None
    if form.kind == "tensor":
        return whole(operation, form)
    chosen = pillow_filter(operation.interpolation)
    if chosen is None or operation.antialias is False:
        return None

    def run(batch: Tensor) -> Tensor:
        height, width = batch.shape[1:3]
        return resample(batch, resized((height, width), operation.size, operation.max_size), chosen)

    def compiled(sizes: Tensor, _colored: bool, _params: Params) -> Operation | None:
        height, width = sizes[0].tolist()
        if not bool((sizes == sizes[:1]).all()):
            return None
        boxes = torch.cat((torch.zeros_like(sizes), sizes), 1)
        return native.resample(boxes, resized((height, width), operation.size, operation.max_size), chosen)

    return Kernel("Resize", form, run, compiled=compiled if native.resamples(chosen) else None)


def resized(before: tuple[int, int], size: Any, max_size: int | None) -> tuple[int, int]:
    """Return height and width of an image after `Resize(size, max_size=max_size)`, by torchvision's arithmetic."""
    height, width = before
    short, long = min(before), max(before)
    if size is None:
        assert max_size is not None  # torchvision asks for it when the operation is made
        return _across(before, int(max_size * short / long), max_size)
    sizes = (size,) if isinstance(size, int) else tuple(size)
    if len(sizes) == 2:
        if max_size is not None:
            raise Unsuited("max_size is for a size of one number")
        return sizes[0], sizes[1]
    new_short, new_long = sizes[0], int(sizes[0] * long / short)
    if max_size is not None:
        if max_size <= new_short:
            raise Unsuited(f"max_size {max_size} is not above the size {new_short}")
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return _across((height, width), new_short, new_long)


def _across(before: tuple[int, int], short: int, long: int) -> tuple[int, int]:
    return (long, short) if before[1] <= before[0] else (short, long)
