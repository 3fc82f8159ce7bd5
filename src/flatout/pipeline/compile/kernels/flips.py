"""`RandomHorizontalFlip` and `RandomVerticalFlip`."""

from typing import Any

import torch
from torch import Tensor

from flatout.native import native
from flatout.native.operation import Operation
from flatout.pipeline.compile.kernels.core.kernel import Drawn, Params, RandomKernel, Unsuited
from flatout.pipeline.compile.kernels.core.original import functional
from flatout.pipeline.compile.kernels.core.row_copies import put, taken
from flatout.pipeline.compile.kernels.core.strides import collated
from flatout.pipeline.compile.rng import Generator, happens
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["random_horizontal_flip", "random_vertical_flip"]


def random_horizontal_flip(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `RandomHorizontalFlip`."""
    return _flip(operation, form, 2 if form.kind == "image" else -1, functional(operation).hflip)


def random_vertical_flip(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `RandomVerticalFlip`."""
    return _flip(operation, form, 1 if form.kind == "image" else -2, functional(operation).vflip)


def _flip(operation: Any, form: SampleForm, axis: int, original: Any) -> RandomKernel | None:
    if form.kind == "array":
        return None

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        return {"flip": happens(operation.p, generator)}

    def run(batch: Tensor, params: Params) -> Tensor:
        if batch.dim() not in (3, 4):
            raise Unsuited(f"an image has two or three axes, not {batch.dim() - 1}")
        if form.kind == "image":
            made = native.operated(compiled(torch.tensor([batch.shape[1:3]]), batch.dim() == 4, params), batch)
            if made is not None:
                return made
        out = batch.clone(memory_format=torch.preserve_format)
        chosen = params["flip"].nonzero()[:, 0]
        if len(chosen):
            put(out, chosen, taken(batch, chosen).flip(axis))
        return out if form.kind == "image" else collated(out)

    def forced(value: object, params: Params, i: int) -> object:
        return original(value) if params["flip"][i] else value

    def compiled(sizes: Tensor, _colored: bool, params: Params) -> Operation | None:
        places = torch.zeros((len(params["flip"]), 4), dtype=torch.int32)
        places[:, 2 if axis == 2 else 3] = params["flip"]
        height, width = sizes[0].tolist()
        return native.cut(places, (height, width), (0, 0, 0)) if bool((sizes == sizes[:1]).all()) else None

    known = native.available() and form.kind == "image"
    name = type(operation).__name__
    return RandomKernel(name, form, draw, run, forced, exact=True, compiled=compiled if known else None)
