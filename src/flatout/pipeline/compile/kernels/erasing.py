"""`RandomErasing`."""

import math
from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.compile.kernels.core.kernel import Drawn, Params, RandomKernel, Unsuited
from flatout.pipeline.compile.kernels.core.original import functional
from flatout.pipeline.compile.kernels.core.strides import collated
from flatout.pipeline.compile.kernels.core.whole_batch import checked
from flatout.pipeline.compile.rng import Generator, aspect, below, happens, log_ratio, torchs, uniform
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["random_erasing"]

_TRIES = 10
_NOTHING = {"erased": False, "top": 0, "left": 0, "height": 0, "width": 0}


def random_erasing(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `RandomErasing` on tensors: in some samples one window is overwritten."""
    if form.kind != "tensor":
        return None
    original, values = functional(operation).erase, _values(operation.value)

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        return _box(shape[-3:], operation, generator) if happens(operation.p, generator) else _NOTHING

    def forced(value: Any, params: Params, i: int) -> object:
        if not params["erased"][i]:
            return value
        top, left, height, width = (int(params[name][i]) for name in ("top", "left", "height", "width"))
        return original(value, top, left, height, width, _pixels(values, params, i), False)

    def run(batch: Tensor, params: Params) -> Tensor:
        checked(operation, batch)
        if values is not None and len(values) not in (1, batch.shape[-3]):
            raise Unsuited(f"{len(values)} values for {batch.shape[-3]} channels")
        if values is None and not batch.is_floating_point():
            raise Unsuited(f"random numbers below zero as {batch.dtype}")
        out = batch.clone(memory_format=torch.preserve_format)
        boxes = torch.stack([params[name] for name in ("top", "left", "height", "width")], 1).tolist()
        for number in params["erased"].nonzero()[:, 0].tolist():
            top, left, height, width = boxes[number]
            out[number, ..., top : top + height, left : left + width] = _pixels(values, params, number)
        return collated(out)

    return RandomKernel("RandomErasing", form, draw, run, forced, exact=True)


def _values(value: Any) -> list[float] | None:
    """Return what pixels are overwritten with, one number a channel or for all; None for random numbers."""
    if value is None or isinstance(value, str):
        return None
    return [float(value)] if isinstance(value, int | float) else [float(number) for number in value]


def _pixels(values: list[float] | None, params: Params, i: int) -> Tensor:
    """Return the new pixels of one sample."""
    if values is not None:
        return torch.tensor(values)[:, None, None]
    pixels: Tensor = params["pixels"][i]
    return pixels


def _box(size: tuple[int, ...], operation: Any, generator: Generator) -> Drawn:
    """Draw a window of a random share of the area and a random shape, the first of ten that fits, if one does.

    Random pixels are drawn before the window's place.
    """
    channels, tall, wide = size
    logs = log_ratio(operation)
    for _ in range(_TRIES):
        area = tall * wide * uniform(operation.scale, generator)
        shape = aspect(logs, generator)
        height, width = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if height < tall and width < wide:
            drawn: Drawn = {"erased": True, "height": height, "width": width}
            if _values(operation.value) is None:
                noise = torch.empty([channels, height, width], dtype=torch.float32)
                drawn["pixels"] = noise.normal_(generator=torchs(generator))
            top, left = below(tall - height + 1, generator), below(wide - width + 1, generator)
            return {**drawn, "top": top, "left": left}
    return _NOTHING
