"""`RandomResizedCrop`."""

import math
from typing import Any

import torch
from torch import Tensor

from flatout.native import native
from flatout.native.operation import Operation
from flatout.native.pixels import image_of, write_pixels
from flatout.pipeline.compile.kernels.core.kernel import Drawn, Params, RandomKernel
from flatout.pipeline.compile.kernels.core.original import functional, pillow_filter
from flatout.pipeline.compile.kernels.core.pillow import for_each, mode_of
from flatout.pipeline.compile.kernels.core.whole_batch import checked
from flatout.pipeline.compile.rng import Generator, aspect, below, log_ratio, uniform
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["random_resized_crop"]

_TRIES = 10


def random_resized_crop(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `RandomResizedCrop`: for every sample a window of its own, all made one size."""
    chosen = pillow_filter(operation.interpolation)
    if form.kind == "array" or chosen is None or operation.antialias is False:
        return None
    pixels = chosen
    functions = functional(operation)
    size = (operation.size[0], operation.size[1])

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        tall, wide = shape[1:3] if form.kind == "image" else shape[-2:]
        return _box(tall, wide, operation, generator)

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
            return _windows(batch, params, size, pixels)
        checked(operation, batch)
        return torch.stack([forced(row, params, i) for i, row in enumerate(batch)])  # type: ignore[misc]

    def compiled(_sizes: Tensor, _colored: bool, params: Params) -> Operation | None:
        return native.resample(_boxes(params), size, pixels)

    known = form.kind == "image" and native.resamples(pixels)
    fast = compiled if known else None
    return RandomKernel("RandomResizedCrop", form, draw, run, forced, exact=True, size=size, compiled=fast)


def _boxes(params: Params) -> Tensor:
    return torch.stack([params[name] for name in ("top", "left", "height", "width")], 1)


def _windows(batch: Tensor, params: Params, size: tuple[int, int], pillow_filter: int) -> Tensor:
    mode_of(batch)
    boxes = _boxes(params)
    made = native.operated(native.resample(boxes, size, pillow_filter), batch)
    return _by_pillow(batch, boxes.tolist(), size, pillow_filter) if made is None else made


def _by_pillow(batch: Tensor, boxes: list[list[int]], size: tuple[int, int], pillow_filter: int) -> Tensor:
    """Return the windows resized by Pillow: almost each has another size, for which torch would not be exact."""
    mode = mode_of(batch)
    out = torch.empty((len(batch), *size, *batch.shape[3:]), dtype=torch.uint8)
    rows = batch.numpy()

    def one(number: int) -> None:
        top, left, height, width = boxes[number]
        window = rows[number, top : top + height, left : left + width].copy()
        image = image_of(window, mode)
        write_pixels(image.resize(size[::-1], pillow_filter) if image.size != size[::-1] else image, out[number])

    for_each(one, len(batch), out[:1].numel())
    return out


def _box(tall: int, wide: int, operation: Any, generator: Generator) -> Drawn:
    """Draw a window of some share of the area and some shape: the first of ten that fits, or a central one."""
    logs = log_ratio(operation)
    for _ in range(_TRIES):
        area = tall * wide * uniform(operation.scale, generator)
        shape = aspect(logs, generator)
        width, height = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < width <= wide and 0 < height <= tall:
            top, left = below(tall - height + 1, generator), below(wide - width + 1, generator)
            return {"top": top, "left": left, "height": height, "width": width}
    height, width = _central(tall, wide, operation.ratio)
    return {"top": (tall - height) // 2, "left": (wide - width) // 2, "height": height, "width": width}


def _central(tall: int, wide: int, ratio: Any) -> tuple[int, int]:
    """Return the height and width of the window that is taken where none of the random ones fits."""
    shape = wide / tall
    if shape < min(ratio):
        return round(wide / min(ratio)), wide
    if shape > max(ratio):
        return tall, round(tall * max(ratio))
    return tall, wide
