"""Pillow's `resize` on a batch of pixels, to the last bit.

Bilinear and bicubic are done by flatout's own compiled code where there is any (native.py). Without:

torch resizes bytes several times faster, but its weights have 15 bits where Pillow's have 22, so that for most sizes
some pixels come out one step away: measured with torch 2.13 on AVX-512, none for 32 -> 224 and 28 -> 32, 0.3 % for
256 -> 224 and 4 % for 48 -> 224. Where an axis grows, a bilinear pixel depends on two neighbours only: all 65,536 pairs
of them are tried once, and torch is taken for the sizes for which every one agrees. All else is Pillow's own.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from flatout.native import native
from flatout.native.pixels import image_of
from flatout.pipeline.compile.kernels.core.pillow import mode_of, one_by_one

__all__ = ["agrees", "resample"]

_NEAREST, _BILINEAR = 0, 2
_LONGEST = 512  # pixels of a line: the trial takes 0.1 s for 32, 2.6 s for 448


def resample(batch: Tensor, size: tuple[int, int], pillow_filter: int) -> Tensor:
    """Return the images resized as `Image.resize` does it; of coloured ones the channels may come first in memory.

    Args:
        batch: bytes of [B, H, W] or [B, H, W, 3].
        size: height and width of the result.
        pillow_filter: Pillow's number of the filter.
    """
    mode_of(batch)
    height, width = batch.shape[1:3]
    if (height, width) == size:
        return batch
    if pillow_filter == _NEAREST:
        return batch.index_select(1, _nearest(height, size[0])).index_select(2, _nearest(width, size[1]))
    whole = torch.tensor([[0, 0, height, width]]).expand(len(batch), 4)
    made = native.operated(native.resample(whole, size, pillow_filter), batch)
    if made is not None:
        return made
    if pillow_filter == _BILINEAR and agrees(height, size[0]) and agrees(width, size[1]):
        return _by_planes(batch, size)
    out = torch.empty((len(batch), *size, *batch.shape[3:]), dtype=torch.uint8)
    one_by_one(batch, out, lambda image, _: image.resize(size[::-1], pillow_filter))
    return out


@lru_cache(maxsize=4096)
def agrees(before: int, after: int) -> bool:
    """Tell whether torch and Pillow give the same bytes for every line of `before` pixels made `after` long."""
    if before == after:
        return True
    if after < before or after > _LONGEST:  # more than two neighbours count: too many cases; or too long a trial
        return False
    pairs = torch.arange(65_536)
    return all(_same_lines(pairs[::step], before, after) for step in (61, 1))


def _same_lines(pairs: Tensor, before: int, after: int) -> bool:
    """Compare lines whose pixels are the two bytes of a pair in turn, lying and standing, in large and small images."""
    pairs = pairs[: len(pairs) // 15 * 15] if len(pairs) < 65_536 else torch.cat((pairs, pairs[:14]))
    two = torch.stack((pairs >> 8, pairs & 255), 1).to(torch.uint8)
    lines = two[:, torch.arange(before) % 2]  # [pairs, before]
    wanted = _by_pillow(lines, after)
    bands, wanted_bands = _rolled(lines), _rolled(wanted)
    for images in (bands[None], bands.unflatten(0, (-1, 3))):
        if not torch.equal(_by_torch(images, (images.shape[1], after)).flatten(0, 1), wanted_bands):
            return False
    for planes in (lines.T[None], lines.unflatten(0, (-1, 5)).transpose(1, 2)):
        if not torch.equal(_taller(planes, after).transpose(1, 2).flatten(0, 1), wanted):
            return False
    return True


def _rolled(lines: Tensor) -> Tensor:
    """Return coloured lines, each of three channels with all pairs, in another order."""
    return torch.stack([lines.roll(21_845 * band, 0) for band in range(3)], -1)


def _by_pillow(lines: Tensor, after: int) -> Tensor:
    out = torch.empty((1, len(lines), after), dtype=torch.uint8)
    one_by_one(lines[None], out, lambda image, _: image.resize((after, len(lines)), _BILINEAR))
    return out[0]


def _by_planes(batch: Tensor, size: tuple[int, int]) -> Tensor:
    """Widen the images, then make each channel taller for itself: the channels are sorted while there are few rows."""
    if batch.dim() == 3:
        return _taller(_three_by_three(batch, size[1]), size[0])
    wide = _by_torch(batch, (batch.shape[1], size[1]))
    planes = _taller(wide.permute(0, 3, 1, 2).contiguous().flatten(0, 1), size[0])
    return planes.view(len(batch), 3, *size).permute(0, 2, 3, 1)


def _by_torch(batch: Tensor, size: tuple[int, int]) -> Tensor:
    images = batch.contiguous().permute(0, 3, 1, 2)
    made = interpolate(images, size=size, mode="bilinear", antialias=True, align_corners=False)
    return made.permute(0, 2, 3, 1).contiguous()


def _three_by_three(batch: Tensor, width: int) -> Tensor:
    """Return gray images widened as the channels of coloured ones, which torch does in a quarter of the time."""
    missing = -len(batch) % 3
    full = torch.cat((batch, batch[:1].expand(missing, -1, -1))) if missing else batch
    made = _by_torch(full.unflatten(0, (-1, 3)).permute(0, 2, 3, 1), (batch.shape[1], width))
    return made.permute(0, 3, 1, 2).contiguous().flatten(0, 1)[: len(batch)]


def _taller(planes: Tensor, height: int) -> Tensor:
    """Return [N, H, W] made taller; as columns do not mix, four of them pass as the channels of one."""
    number, _, width = planes.shape
    missing = -width % 4
    wide = pad(planes, (0, missing)) if missing else planes
    fours = wide.contiguous().unflatten(-1, (-1, 4)).permute(0, 3, 1, 2)
    size = (height, fours.shape[-1])
    made = interpolate(fours, size=size, mode="bilinear", antialias=True, align_corners=False)
    return made.permute(0, 2, 3, 1).reshape(number, height, width + missing)[..., :width].contiguous()


@lru_cache(maxsize=4096)
def _nearest(before: int, after: int) -> Tensor:
    """Return which pixel of a line Pillow takes for each pixel of the result, as Pillow shows it on a line."""
    import numpy

    line = image_of(numpy.arange(before, dtype=numpy.int32)[None], "I").resize((after, 1), _NEAREST)
    return torch.from_numpy(numpy.array(line, dtype=numpy.int64)[0])
