"""Random operations that are done sample by sample, by the original, inside a chain that is done in batches."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flatout.native.pixels import image_of, write_pixels
from flatout.pipeline.compile.kernels.core.kernel import Draw, Params, RandomKernel, Unsuited
from flatout.pipeline.compile.kernels.core.pillow import for_each, mode_of
from flatout.pipeline.compile.kernels.core.strides import collated
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["each"]


_Forced = Callable[[Any, Params, int], Any]


def each(name: str, form: SampleForm, draw: Draw, forced: _Forced, exact: bool = True) -> RandomKernel:
    """Return the kernel that gives `forced` one image or tensor after the other, of one size before and after."""

    def run(batch: Tensor, params: Params) -> Tensor:
        if form.kind == "image":
            return _images(batch, params, forced)
        if batch.dim() != 4:
            raise Unsuited(f"{name} is known for [C, H, W], not for {batch.dim() - 1} axes")
        return collated(torch.stack([forced(row, params, number) for number, row in enumerate(batch)]))

    return RandomKernel(name, form, draw, run, forced, exact)


def _images(batch: Tensor, params: Params, forced: _Forced) -> Tensor:
    mode, out = mode_of(batch), torch.empty_like(batch, memory_format=torch.contiguous_format)
    rows = batch.contiguous().numpy()

    def one(number: int) -> None:
        write_pixels(forced(image_of(rows[number], mode), params, number), out[number])

    for_each(one, len(batch), out[:1].numel())
    return out
