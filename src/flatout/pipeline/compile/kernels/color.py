"""`ColorJitter` on images, as Pillow does it: four changes in an order and with strengths of each sample's own.

Brightness, contrast and saturation are Pillow's blend of the image with black, its mean and its gray: a product and a
sum in floats of 32 bits. As compilers may fuse the two, all 65,536 pairs of bytes are tried once. Hue is Pillow's own
conversion of many images at once, a shift, and the way back.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from flatout.native import native
from flatout.native.operation import Operation
from flatout.native.pixels import image_of, write_pixels
from flatout.pipeline.compile.kernels.core.kernel import Drawn, Params, RandomKernel
from flatout.pipeline.compile.kernels.core.original import functional
from flatout.pipeline.compile.kernels.core.pillow import converted, mode_of
from flatout.pipeline.compile.kernels.core.row_copies import put
from flatout.pipeline.compile.rng import Generator, order, uniform
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["color_jitter"]

_PIECE_BYTES = 512 * 1024  # of floats: what the changes work on stays in a core's second-level cache

_NAMES = ("brightness", "contrast", "saturation", "hue")


def color_jitter(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `ColorJitter` on images."""
    if form.kind != "image" or not _blends_as_pillow():
        return None
    functions = functional(operation)
    ranges = {name: limits for name in _NAMES if (limits := getattr(operation, name)) is not None}

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        drawn: Drawn = {"order": order(4, generator)}
        for name, limits in ranges.items():
            drawn[name] = uniform(limits, generator)
        return drawn

    def forced(value: Any, params: Params, i: int) -> object:
        for number in params["order"][i].tolist():
            name = _NAMES[number]
            if name in params:
                value = getattr(functions, f"adjust_{name}")(value, float(params[name][i]))
        return value

    compiled = _compiled if _compiled_as_pillow() else None
    return RandomKernel("ColorJitter", form, draw, _changed, forced, exact=True, compiled=compiled)


def _compiled(_sizes: Tensor, _colored: bool, params: Params) -> Operation | None:
    strengths = torch.full((len(params["order"]), 4), -1.0)
    for place, name in enumerate(_NAMES):
        if name in params:
            strengths[:, place] = _steps(params[name]) if name == "hue" else params[name]
    return native.jitter(params["order"], strengths)


def _changed(batch: Tensor, params: Params) -> Tensor:
    channels = len(mode_of(batch))
    made = native.operated(_compiled(torch.empty(0), channels == 3, params), batch) if _compiled_as_pillow() else None
    if made is not None:
        return made
    first = batch.view(*batch.shape[:3], channels).permute(0, 3, 1, 2)
    out = torch.empty(first.shape, dtype=torch.uint8)
    piece = max(1, _PIECE_BYTES // (4 * max(1, math.prod(out.shape[1:]))))
    for start in range(0, len(batch), piece):
        rows = slice(start, start + piece)
        planes = first[rows].contiguous().float()
        _change(planes, {name: value[rows] for name, value in params.items()})
        out[rows] = planes.to(torch.int16)  # torch makes bytes of floats three times slower
    return out.permute(0, 2, 3, 1) if channels == 3 else out[:, 0]


def _change(planes: Tensor, params: Params) -> None:
    """Do the four changes to [B, C, H, W] floats that are whole, each sample in its own order."""
    for place in range(4):
        now = params["order"][:, place]
        if len(planes) == 1:
            name = _NAMES[int(now)]
            if name in params:
                _CHANGES[name](planes, params[name])
            continue
        _blend_each(planes, now, params)
        if "hue" in params:
            _turn_some(planes, (now == _NAMES.index("hue")).nonzero()[:, 0], params["hue"])


def _turn_some(planes: Tensor, chosen: Tensor, factors: Tensor) -> None:
    if len(chosen):
        some = planes.index_select(0, chosen)
        _hue(some, factors[chosen])
        put(planes, chosen, some)


def _blend_each(planes: Tensor, now: Tensor, params: Params) -> None:
    """Do to each sample the blend that is now its turn; with a strength of 1 it stays as it is."""
    factors = torch.ones(len(planes), dtype=torch.float64)
    for number, name in enumerate(_NAMES[:3]):
        if name in params:
            factors = torch.where(now == number, params[name], factors)
    other: Tensor | float = 0.0
    if "contrast" in params or "saturation" in params:
        gray = _gray(planes)
        flat, by_pixel = now == _NAMES.index("contrast"), now == _NAMES.index("saturation")
        other = gray * _each(by_pixel) + _each(flat) * _means(gray)
    _blend(planes, other, factors)


def _brightness(planes: Tensor, factors: Tensor) -> None:
    planes.mul_(_each(factors)).clamp_(0, 255).floor_()


def _contrast(planes: Tensor, factors: Tensor) -> None:
    _blend(planes, _means(_gray(planes)), factors)


def _saturation(planes: Tensor, factors: Tensor) -> None:
    if planes.shape[1] == 3:
        _blend(planes, _gray(planes), factors)


def _hue(planes: Tensor, factors: Tensor) -> None:
    if planes.shape[1] == 1:
        return
    images = planes.to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    turned = converted(images, "RGB", "HSV")
    turned[..., 0] += _steps(factors).view(-1, 1, 1)
    planes.copy_(converted(turned, "HSV", "RGB").permute(0, 3, 1, 2))


def _steps(factors: Tensor) -> Tensor:
    """Return by how many of 255 steps hues are turned, as bytes: towards zero, then around."""
    return (factors * 255).to(torch.int32).to(torch.uint8)


_CHANGES = {"brightness": _brightness, "contrast": _contrast, "saturation": _saturation, "hue": _hue}


def _gray(planes: Tensor) -> Tensor:
    """Return Pillow's gray as [B, 1, H, W]: its weights are 65,536ths, and no sum of them passes 2**24."""
    if planes.shape[1] == 1:
        return planes
    red, green, blue = planes.split(1, 1)
    gray: Tensor = (red * 19_595).add_(green, alpha=38_470).add_(blue, alpha=7_471)
    return gray.add_(32_768).mul_(2.0**-16).floor_()


def _means(gray: Tensor) -> Tensor:
    """Return the rounded mean of each gray image; whole numbers below 2**24 have exact sums in floats of 32 bits."""
    pixels = gray[0].numel()
    sums = gray.sum((1, 2, 3), dtype=torch.float32 if pixels * 255 < 2**24 else torch.float64)
    return _each((sums.double() / pixels + 0.5).floor())


def _each(values: Tensor) -> Tensor:
    """Return one number a sample, as floats that fit [B, C, H, W]."""
    return values.float().view(-1, 1, 1, 1)


def _blend(planes: Tensor, other: Tensor | float, factors: Tensor) -> None:
    """Move the planes away from or towards `other`, by Pillow's arithmetic in floats of 32 bits."""
    planes.sub_(other).mul_(_each(factors)).add_(other).clamp_(0, 255).floor_()


@lru_cache(maxsize=1)
def _compiled_as_pillow() -> bool:
    """Tell whether compiled code changes colors as this Pillow does, at strengths of all kinds."""
    from PIL import ImageEnhance

    if not native.available():
        return False
    batch = torch.randint(0, 256, (1, 48, 48, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    image, out = image_of(batch[0].numpy(), "RGB"), torch.empty((48, 48, 3), dtype=torch.uint8)
    for place, change in enumerate((ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)):
        for factor in (0.0, 0.1, 1 / 3, 0.6180339, 0.999, 1.0, 1.1, 4 / 3, 2.0, 9.3):
            write_pixels(change(image).enhance(factor), out)
            if not torch.equal(_changed_alone(batch, place, factor), out):
                return False
    turned = converted(batch, "RGB", "HSV")
    turned[..., 0] += 87
    return torch.equal(_changed_alone(batch, _NAMES.index("hue"), 87.0), converted(turned, "HSV", "RGB")[0])


def _changed_alone(batch: Tensor, place: int, strength: float) -> Tensor:
    strengths = torch.full((1, 4), -1.0)
    strengths[0, place] = strength
    made = native.operated(native.jitter(torch.arange(4)[None], strengths), batch)
    assert made is not None
    return made[0]


@lru_cache(maxsize=1)
def _blends_as_pillow() -> bool:
    """Tell whether the arithmetic above gives Pillow's bytes for every pair of bytes, at strengths of all kinds."""
    import numpy
    from PIL import Image

    high = numpy.repeat(numpy.arange(256, dtype=numpy.uint8), 256).reshape(256, 256)
    low = high.T.copy()
    out = torch.empty((256, 256), dtype=torch.uint8)
    for factor in (0.0, 1e-3, 0.1, 1 / 3, 0.5, 0.6180339, 0.75, 0.9, 0.999, 1.0, 1.001, 1.1, 4 / 3, 1.7, 2.0, 9.3):
        write_pixels(Image.blend(image_of(high, "L"), image_of(low, "L"), factor), out)
        planes = torch.from_numpy(low).float()[None, None]
        _blend(planes, torch.from_numpy(high).float()[None, None], torch.tensor([factor]))
        if not torch.equal(planes[0, 0].to(torch.uint8), out):
            return False
    return True
