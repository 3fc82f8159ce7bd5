"""`Grayscale` and `RandomGrayscale`."""

from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.compile.kernels.convert import as_it_is
from flatout.pipeline.compile.kernels.core.kernel import Drawn, Kernel, Params, RandomKernel
from flatout.pipeline.compile.kernels.core.original import functional, is_v2
from flatout.pipeline.compile.kernels.core.pillow import converted, mode_of
from flatout.pipeline.compile.kernels.core.row_copies import put, taken
from flatout.pipeline.compile.kernels.core.strides import collated
from flatout.pipeline.compile.kernels.core.whole_batch import checked, whole
from flatout.pipeline.compile.rng import Generator, happens
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["grayscale", "random_grayscale"]


def grayscale(operation: Any, form: SampleForm) -> Kernel | None:
    """Return the kernel of `Grayscale` to one or three channels."""
    channels = operation.num_output_channels
    if channels not in (1, 3):
        return None
    if form.kind == "array":
        return as_it_is(operation, form) if is_v2(operation) else None
    if form.kind == "tensor":
        return whole(operation, form)
    return Kernel(
        "Grayscale", SampleForm("image", "L" if channels == 1 else "RGB"), lambda batch: _gray(batch, channels)
    )


def random_grayscale(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `RandomGrayscale`, which keeps the number of channels."""
    if form.kind == "array":
        return None
    functions = functional(operation)

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        return {"gray": happens(operation.p, generator)}

    def run(batch: Tensor, params: Params) -> Tensor:
        chosen = params["gray"].nonzero()[:, 0]
        if form.kind == "tensor":
            checked(operation, batch)
        out = batch.clone(memory_format=torch.preserve_format)
        some = taken(batch, chosen)
        if len(chosen) and form.kind == "image":
            put(out, chosen, _gray(some, len(mode_of(batch))))
        elif len(chosen):
            put(out, chosen, functions.rgb_to_grayscale(some, num_output_channels=batch.shape[-3]))
        return out if form.kind == "image" else collated(out)

    def forced(value: Any, params: Params, i: int) -> object:
        if not params["gray"][i]:
            return value
        channels = len(value.mode) if form.kind == "image" else value.shape[-3]
        return functions.rgb_to_grayscale(value, num_output_channels=channels)

    return RandomKernel("RandomGrayscale", form, draw, run, forced, exact=True)


def _luma(batch: Tensor) -> Tensor:
    return batch if mode_of(batch) == "L" else converted(batch, "RGB", "L")


def _gray(batch: Tensor, channels: int) -> Tensor:
    gray = _luma(batch)
    return gray if channels == 1 else gray.unsqueeze(-1).expand(*gray.shape, 3).contiguous()
