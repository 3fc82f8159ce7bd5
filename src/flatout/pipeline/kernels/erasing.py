"""`RandomErasing`."""

from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.form import Form
from flatout.pipeline.kernels.chance import first_fitting, integers_below, uniform
from flatout.pipeline.kernels.kernel import Params, RandomKernel, Unsuited
from flatout.pipeline.kernels.original import functional
from flatout.pipeline.kernels.strides import collated
from flatout.pipeline.kernels.whole import checked

__all__ = ["random_erasing"]

_TRIES = 10
_SEEDS = 2**62


def random_erasing(operation: Any, form: Form) -> RandomKernel | None:
    """Return the kernel of `RandomErasing` on tensors: in some samples one window is overwritten."""
    if form.kind != "tensor":
        return None
    original, values = functional(operation).erase, _values(operation.value)

    def draw(num: int, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Params:
        erased = torch.rand(num, generator=generator) < operation.p
        params = _boxes(num, shape[-2:], (operation.scale, operation.ratio), generator)
        seeds = torch.randint(_SEEDS, (num,), generator=generator)
        return {**params, "erased": erased & params["found"], "seed": seeds}

    def forced(value: Any, params: Params, i: int) -> object:
        if not params["erased"][i]:
            return value
        top, left, height, width = (int(params[name][i]) for name in ("top", "left", "height", "width"))
        pixels = _pixels(values, (value.shape[-3], height, width), int(params["seed"][i]))
        return original(value, top, left, height, width, pixels, False)

    def run(batch: Tensor, params: Params) -> Tensor:
        checked(operation, batch)
        if values is not None and len(values) not in (1, batch.shape[-3]):
            raise Unsuited(f"{len(values)} values for {batch.shape[-3]} channels")
        out = batch.clone(memory_format=torch.preserve_format)
        boxes = torch.stack([params[name] for name in ("top", "left", "height", "width", "seed")], 1).tolist()
        for number in params["erased"].nonzero()[:, 0].tolist():
            top, left, height, width, seed = boxes[number]
            pixels = _pixels(values, (batch.shape[-3], height, width), seed)
            out[number, ..., top : top + height, left : left + width] = pixels
        return collated(out)

    return RandomKernel("RandomErasing", form, draw, run, forced)


def _values(value: Any) -> list[float] | None:
    """Return what pixels are overwritten with, one number a channel or for all; None for random numbers."""
    if value is None or isinstance(value, str):
        return None
    return [float(value)] if isinstance(value, int | float) else [float(number) for number in value]


def _pixels(values: list[float] | None, shape: tuple[int, int, int], seed: int) -> Tensor:
    """Return the new pixels; random ones come from the sample's own seed, so that they can be made again."""
    if values is not None:
        return torch.tensor(values)[:, None, None]
    return torch.empty(shape, dtype=torch.float32).normal_(generator=torch.Generator().manual_seed(seed))


def _boxes(num: int, size: tuple[int, ...], ranges: tuple[Any, Any], generator: torch.Generator | None) -> Params:
    """Draw windows of a random share of the area and a random shape: the first of ten that fits, if one does."""
    (tall, wide), (scale, ratio) = size, ranges
    log_ratio = torch.log(torch.tensor(ratio)).tolist()
    area = tall * wide * uniform(num * _TRIES, scale, generator).view(num, _TRIES)
    aspect = uniform(num * _TRIES, log_ratio, generator).float().exp().double().view(num, _TRIES)
    heights, widths = (area * aspect).sqrt().round().long(), (area / aspect).sqrt().round().long()
    first, found = first_fitting((heights < tall) & (widths < wide))
    each = torch.arange(num)
    height, width = heights[each, first], widths[each, first]
    top = integers_below((tall - height + 1).clamp_(min=1), generator)
    left = integers_below((wide - width + 1).clamp_(min=1), generator)
    return {"found": found, "top": top, "left": left, "height": height, "width": width}
