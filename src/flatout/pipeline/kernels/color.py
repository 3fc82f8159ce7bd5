"""`ColorJitter` on images, as Pillow does it: four changes in an order and with strengths of each sample's own.

Brightness, contrast and saturation are Pillow's blend of the image with black, its mean and its gray: a product and a
sum in floats of 32 bits. As compilers may fuse the two, all 65,536 pairs of bytes are tried once. Hue is Pillow's own
conversion of many images at once, a shift, and the way back.
"""

import sys
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.form import Form
from flatout.pipeline.kernels.chance import uniform
from flatout.pipeline.kernels.kernel import Params, RandomKernel
from flatout.pipeline.kernels.original import functional
from flatout.pipeline.kernels.pillow import converted, image_of, mode_of, write_pixels

__all__ = ["color_jitter"]

_PIECE_BYTES = 512 * 1024  # of floats: what the changes work on stays in a core's second-level cache
_MANTISSA = 2.0**23  # a float of 32 bits to which it is added has whole numbers below 2**23 in its low bytes

_NAMES = ("brightness", "contrast", "saturation", "hue")


def color_jitter(operation: Any, form: Form) -> RandomKernel | None:
    """Return the kernel of `ColorJitter` on images."""
    if form.kind != "image" or not _blends_as_pillow():
        return None
    functions = functional(operation)
    ranges = {name: getattr(operation, name) for name in _NAMES}

    def draw(num: int, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Params:
        params = {"order": torch.rand(num, 4, generator=generator, dtype=torch.float64).argsort(1)}
        for name, limits in ranges.items():
            if limits is not None:
                params[name] = uniform(num, limits, generator)
        return params

    def forced(value: Any, params: Params, i: int) -> object:
        for number in params["order"][i].tolist():
            name = _NAMES[number]
            if name in params:
                value = getattr(functions, f"adjust_{name}")(value, float(params[name][i]))
        return value

    return RandomKernel("ColorJitter", form, draw, _changed, forced)


def _changed(batch: Tensor, params: Params) -> Tensor:
    channels = len(mode_of(batch))
    out = torch.empty_like(batch, memory_format=torch.contiguous_format)
    piece = max(1, _PIECE_BYTES // (4 * channels * max(1, batch.shape[1] * batch.shape[2])))
    for start in range(0, len(batch), piece):
        rows = slice(start, start + piece)
        planes = batch[rows].view(-1, *batch.shape[1:3], channels).permute(0, 3, 1, 2).contiguous().float()
        _change(planes, {name: value[rows] for name, value in params.items()})
        _write_bytes(planes, out[rows])
    return out


def _change(planes: Tensor, params: Params) -> None:
    """Do the four changes to [B, C, H, W] floats that are whole, each sample in its own order."""
    for place in range(4):
        for number, name in enumerate(_NAMES):
            chosen = (params["order"][:, place] == number).nonzero()[:, 0] if name in params else ()
            if len(chosen) == len(planes):
                _CHANGES[name](planes, params[name])
            elif len(chosen):
                some = planes[chosen]
                _CHANGES[name](some, params[name][chosen])
                planes[chosen] = some


def _write_bytes(planes: Tensor, out: Tensor) -> None:
    """Write whole floats of [B, C, H, W] as bytes of [B, H, W] or [B, H, W, C]; the planes are used up."""
    if sys.byteorder == "little":  # three times as fast as torch's conversion
        planes = planes.add_(_MANTISSA).view(torch.uint8).unflatten(-1, (-1, 4))[..., 0]
    out.view(len(out), *planes.shape[2:], -1).copy_(planes.permute(0, 2, 3, 1))


def _brightness(planes: Tensor, factors: Tensor) -> None:
    planes.mul_(factors.float().view(-1, 1, 1, 1)).clamp_(0, 255).floor_()


def _contrast(planes: Tensor, factors: Tensor) -> None:
    gray = _gray(planes)
    means = (gray.sum((1, 2, 3), dtype=torch.float64) / gray[0].numel() + 0.5).floor()
    _blend(planes, means.float().view(-1, 1, 1, 1), factors)


def _saturation(planes: Tensor, factors: Tensor) -> None:
    if planes.shape[1] == 3:
        _blend(planes, _gray(planes), factors)


def _hue(planes: Tensor, factors: Tensor) -> None:
    if planes.shape[1] == 1:
        return
    images = planes.to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    turned = converted(images, "RGB", "HSV")
    shifts = (factors * 255).to(torch.int32).to(torch.uint8)  # towards zero, then around
    turned[..., 0] += shifts.view(-1, 1, 1)
    planes.copy_(converted(turned, "HSV", "RGB").permute(0, 3, 1, 2))


_CHANGES = {"brightness": _brightness, "contrast": _contrast, "saturation": _saturation, "hue": _hue}


def _gray(planes: Tensor) -> Tensor:
    """Return Pillow's gray as [B, 1, H, W]: its weights are 65,536ths, and no sum of them passes 2**24."""
    if planes.shape[1] == 1:
        return planes
    red, green, blue = planes.split(1, 1)
    gray: Tensor = (red * 19_595).add_(green, alpha=38_470).add_(blue, alpha=7_471)
    return gray.add_(32_768).mul_(2.0**-16).floor_()


def _blend(planes: Tensor, other: Tensor, factors: Tensor) -> None:
    """Move the planes away from or towards `other`, by Pillow's arithmetic in floats of 32 bits."""
    factors = factors.float().view(-1, 1, 1, 1)
    planes.sub_(other).mul_(factors).add_(other).clamp_(0, 255).floor_()


@lru_cache(maxsize=1)
def _blends_as_pillow() -> bool:
    """Tell whether the arithmetic above gives Pillow's bytes for every pair of bytes, at strengths of all kinds."""
    import numpy
    from PIL import Image

    high = numpy.repeat(numpy.arange(256, dtype=numpy.uint8), 256).reshape(256, 256)
    low = high.T.copy()
    out = torch.empty((256, 256), dtype=torch.uint8)
    for factor in (0.0, 1e-3, 0.1, 1 / 3, 0.5, 0.6180339, 0.75, 0.9, 0.999, 1.0, 1.001, 1.1, 4 / 3, 1.7, 2.0, 9.3):
        write_pixels(Image.blend(image_of(high, "L"), image_of(low, "L"), factor), out.numpy())
        planes = torch.from_numpy(low).float()[None, None]
        _blend(planes, torch.from_numpy(high).float()[None, None], torch.tensor([factor]))
        if not torch.equal(planes[0, 0].to(torch.uint8), out):
            return False
    return True
