"""`RandomResizedCrop`."""

from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.form import Form
from flatout.pipeline.kernels.chance import first_fitting, integers_below, uniform
from flatout.pipeline.kernels.kernel import Params, RandomKernel
from flatout.pipeline.kernels.original import functional, pillow_filter
from flatout.pipeline.kernels.pillow import image_of, mode_of, write_pixels
from flatout.pipeline.kernels.whole import checked

__all__ = ["random_resized_crop"]

_TRIES = 10


def random_resized_crop(operation: Any, form: Form) -> RandomKernel | None:
    """Return the kernel of `RandomResizedCrop`: for every sample a window of its own, all made one size."""
    chosen = pillow_filter(operation.interpolation)
    if form.kind == "array" or chosen is None or operation.antialias is False:
        return None
    pixels = chosen
    functions = functional(operation)
    size = tuple(operation.size)

    def draw(num: int, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Params:
        tall, wide = shape[1:3] if form.kind == "image" else shape[-2:]
        return _boxes(num, tall, wide, (operation.scale, operation.ratio), generator)

    def forced(value: Any, params: Params, i: int) -> object:
        top, left, height, width = (int(params[name][i]) for name in ("top", "left", "height", "width"))
        return functions.resized_crop(
            value,
            top,
            left,
            height,
            width,
            list(operation.size),
            interpolation=operation.interpolation,
            antialias=operation.antialias,
        )

    def run(batch: Tensor, params: Params) -> Tensor:
        if form.kind == "image":
            return _by_pillow(batch, params, size, pixels)
        checked(operation, batch)
        return torch.stack([forced(row, params, i) for i, row in enumerate(batch)])  # type: ignore[misc]

    return RandomKernel("RandomResizedCrop", form, draw, run, forced)


def _by_pillow(batch: Tensor, params: Params, size: tuple[int, ...], pillow_filter: int) -> Tensor:
    """Return the windows resized by Pillow: almost each has another size, for which torch would not be exact."""
    mode = mode_of(batch)
    out = torch.empty((len(batch), *size, *batch.shape[3:]), dtype=torch.uint8)
    boxes = torch.stack([params[name] for name in ("top", "left", "height", "width")], 1).tolist()
    rows, into = batch.numpy(), out.numpy()
    for number, (top, left, height, width) in enumerate(boxes):
        window = rows[number, top : top + height, left : left + width].copy()
        image = image_of(window, mode)
        write_pixels(image.resize(size[::-1], pillow_filter) if image.size != size[::-1] else image, into[number])
    return out


def _boxes(num: int, tall: int, wide: int, ranges: tuple[Any, Any], generator: torch.Generator | None) -> Params:
    """Draw windows of a random share of the area and a random shape: the first of ten that fits, else a central one."""
    scale, ratio = ranges
    log_ratio = torch.log(torch.tensor(ratio)).tolist()
    area = tall * wide * uniform(num * _TRIES, scale, generator).view(num, _TRIES)
    aspect = uniform(num * _TRIES, log_ratio, generator).float().exp().double().view(num, _TRIES)
    widths, heights = (area * aspect).sqrt().round().long(), (area / aspect).sqrt().round().long()
    first, found = first_fitting((widths > 0) & (widths <= wide) & (heights > 0) & (heights <= tall))
    each = torch.arange(num)
    central_tall, central_wide = _central(tall, wide, ratio)
    height = torch.where(found, heights[each, first], central_tall)
    width = torch.where(found, widths[each, first], central_wide)
    top = torch.where(found, integers_below((tall - height + 1).clamp_(min=1), generator), (tall - height) // 2)
    left = torch.where(found, integers_below((wide - width + 1).clamp_(min=1), generator), (wide - width) // 2)
    return {"top": top, "left": left, "height": height, "width": width}


def _central(tall: int, wide: int, ratio: Any) -> tuple[int, int]:
    """Return the height and width of the window that is taken where none of the random ones fits."""
    shape = wide / tall
    if shape < min(ratio):
        return round(wide / min(ratio)), wide
    if shape > max(ratio):
        return tall, round(tall * max(ratio))
    return tall, wide
