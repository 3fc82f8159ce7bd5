"""Padding and cropping images by looking up, for each row and column of the result, where it comes from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatout.native.pixels import channels_lead
from flatout.pipeline.compile.kernels.core.kernel import Unsuited
from flatout.pipeline.compile.kernels.core.row_copies import new_images

__all__ = ["Edges", "cut", "edges_of", "fill_of", "padded"]

_MODES = ("constant", "edge", "reflect", "symmetric")


@dataclass(frozen=True)
class Edges:
    """How many pixels are added on each side, and with what.

    Attributes:
        left, top, right, bottom: pixels; none is negative.
        mode: `constant`, `edge`, `reflect` or `symmetric`.
        fill: one byte a channel, for `constant`.
    """

    left: int
    top: int
    right: int
    bottom: int
    mode: str = "constant"
    fill: tuple[int, ...] = (0,)


def edges_of(padding: Any, mode: str, fill: tuple[int, ...]) -> Edges | None:
    """Return the edges that a number, or 1, 2 or 4 of them, ask for; None where they are not understood."""
    sides = [padding] * 4 if isinstance(padding, int) else list(padding)
    sides = sides * 4 if len(sides) == 1 else sides * 2 if len(sides) == 2 else sides
    if len(sides) != 4 or mode not in _MODES or not all(isinstance(side, int) and side >= 0 for side in sides):
        return None
    left, top, right, bottom = sides
    return Edges(left, top, right, bottom, mode, fill)


def fill_of(fill: Any, channels: int) -> tuple[int, ...] | None:
    """Return the bytes with which Pillow fills a pixel; None for a fill that Pillow reads in a way of its own."""
    values: Sequence[Any] = [fill or 0] if fill is None or isinstance(fill, int | float) else list(fill)
    if len(values) not in (1, channels) or (channels == 1 and isinstance(fill, list | tuple)):
        return None
    numbers = [int(value) for value in values]
    return tuple(numbers * (channels // len(numbers))) if all(0 <= number <= 255 for number in numbers) else None


def padded(batch: Tensor, edges: Edges) -> Tensor:
    """Return the images of [B, H, W] or [B, H, W, C] with edges around them."""
    height, width = batch.shape[1:3]
    rows = _sources(height, edges.top, edges.bottom, edges.mode)
    columns = _sources(width, edges.left, edges.right, edges.mode)
    if edges.mode != "constant":
        return _looked_up(batch, rows, columns)
    out = new_images(batch, len(rows), len(columns))
    out[:] = torch.tensor(edges.fill, dtype=batch.dtype) if batch.dim() == 4 else edges.fill[0]
    out[:, edges.top : edges.top + height, edges.left : edges.left + width] = batch
    return out


def cut(batch: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """Return one window of all images; what lies outside is black, as Pillow's `crop` leaves it."""
    rows, columns = batch.shape[1:3]
    beyond = (max(0, -left), max(0, -top), max(0, left + width - columns), max(0, top + height - rows))
    if any(beyond):
        batch = padded(batch, Edges(*beyond, fill=(0,) * (batch.shape[3] if batch.dim() == 4 else 1)))
        top, left = top + beyond[1], left + beyond[0]
    out = new_images(batch, height, width)
    out.copy_(batch[:, top : top + height, left : left + width])
    return out


def _looked_up(batch: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    if channels_lead(batch):
        planes = batch.permute(0, 3, 1, 2).index_select(2, rows).index_select(3, columns)
        return planes.permute(0, 2, 3, 1)
    return batch.index_select(1, rows).index_select(2, columns)


def _sources(length: int, before: int, after: int, mode: str) -> Tensor:
    """Return which pixel of a line each pixel of the padded line shows, by the rules of `numpy.pad`."""
    places = torch.arange(-before, length + after)
    if mode == "constant":
        return places
    if mode == "edge":
        return places.clamp(0, length - 1)
    if length == 0:
        raise Unsuited("an image without pixels")
    if mode == "symmetric":
        turned = places % (2 * length)
        return torch.where(turned < length, turned, 2 * length - 1 - turned)
    period = max(1, 2 * length - 2)
    turned = places % period
    return torch.where(turned < length, turned, period - turned)
