"""`RandomCrop`."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from flatout.native import native
from flatout.native.operation import Operation
from flatout.pipeline.compile.kernels.core.edge_lookup import Edges, edges_of, fill_of, padded
from flatout.pipeline.compile.kernels.core.kernel import Compiled, Drawn, Params, RandomKernel, Unsuited
from flatout.pipeline.compile.kernels.core.original import functional, is_v2, number_of_channels
from flatout.pipeline.compile.kernels.core.pillow import mode_of
from flatout.pipeline.compile.kernels.core.row_copies import windows
from flatout.pipeline.compile.kernels.core.whole_batch import checked
from flatout.pipeline.compile.kernels.crop_and_pad import common_fill
from flatout.pipeline.compile.rng import Generator, below
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["random_crop"]

_Sides = tuple[int, int, int, int]  # left, top, right, bottom
_SidesOf = Callable[[int, int], Iterable[_Sides]]  # of an image's height and width


def random_crop(operation: Any, form: SampleForm) -> RandomKernel | None:
    """Return the kernel of `RandomCrop`: padding first, then for every sample a window of its own."""
    fill, base = common_fill(operation), _base(operation)
    if form.kind == "array" or not fill or base is None:
        return None
    pixel = fill_of(fill[0], number_of_channels(form.mode)) if form.kind == "image" else (0,)
    sides_of = partial(_sides, operation, base)
    return None if pixel is None else _crop(operation, form, (fill[0], pixel), sides_of)


def _crop(operation: Any, form: SampleForm, fills: tuple[Any, tuple[int, ...]], sides_of: _SidesOf) -> RandomKernel:
    """Return the kernel; `fills` are the fill as given and as bytes of a pixel."""
    (fill, pixel), (height, width) = fills, operation.size
    functions, modern = functional(operation), is_v2(operation)
    room = _room_of(sides_of, height, width)
    plain = form.kind == "image" and operation.padding_mode == "constant" and native.available()
    compiled = partial(_compiled, (height, width), sides_of, pixel) if plain else None

    def draw(shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        tall, wide = shape[1:3] if form.kind == "image" else shape[-2:]
        return _place(*room(tall, wide), modern, generator)

    def run(batch: Tensor, params: Params) -> Tensor:
        if form.kind == "image":
            mode_of(batch)
            made = _cut(compiled, batch, params)
            if made is not None:
                return made
            for sides in sides_of(*batch.shape[1:3]):
                batch = padded(batch, Edges(*sides, operation.padding_mode, pixel))
            return windows(batch, 1, params["top"], params["left"], (height, width))
        checked(operation, batch)
        for sides in sides_of(*batch.shape[-2:]):
            batch = functions.pad(batch, list(sides), fill, operation.padding_mode)
        return windows(batch, batch.dim() - 2, params["top"], params["left"], (height, width))

    def forced(value: Any, params: Params, i: int) -> object:
        _, tall, wide = functions.get_dimensions(value)
        for sides in sides_of(tall, wide):
            value = functions.pad(value, list(sides), fill, operation.padding_mode)
        return functions.crop(value, int(params["top"][i]), int(params["left"][i]), height, width)

    return RandomKernel("RandomCrop", form, draw, run, forced, exact=True, size=(height, width), compiled=compiled)


def _cut(compiled: Compiled | None, batch: Tensor, params: Params) -> Tensor | None:
    if compiled is None:
        return None
    return native.operated(compiled(torch.tensor([batch.shape[1:3]]), batch.dim() == 4, params), batch)


def _compiled(
    size: tuple[int, int], sides_of: _SidesOf, pixel: tuple[int, ...], sizes: Tensor, _colored: bool, params: Params
) -> Operation | None:
    """Return the operation that cuts windows out of images without padding them: what lies beyond is filled."""
    shapes = [(height, width) for height, width in sizes.tolist()]
    before: dict[tuple[int, int], tuple[int, int]] = {}
    for height, width in set(shapes):
        sides = list(sides_of(height, width))
        before[height, width] = sum(side[1] for side in sides), sum(side[0] for side in sides)
    places = torch.zeros((len(params["top"]), 4), dtype=torch.int32)
    places[:, 0], places[:, 1] = params["top"], params["left"]
    places[:, :2] -= torch.tensor([before[shape] for shape in shapes], dtype=torch.int32)
    return native.cut(places, size, pixel)


def _room_of(sides_of: _SidesOf, height: int, width: int) -> Callable[[int, int], tuple[int, int]]:
    """Return what says how far a window can be moved down and to the right, in a padded image of some size."""

    @lru_cache(maxsize=64)
    def room(tall: int, wide: int) -> tuple[int, int]:
        for left, top, right, bottom in sides_of(tall, wide):
            tall, wide = tall + top + bottom, wide + left + right
        if tall < height or wide < width:
            raise Unsuited(f"a crop of {height}x{width} is larger than the image of {tall}x{wide}")
        return tall - height, wide - width

    return room


def _place(tall: int, wide: int, modern: bool, generator: Generator) -> Drawn:
    """Draw where a window lies that has so much room; v1 draws for an axis without room if the other has some."""
    if not (tall or wide):
        return {"top": 0, "left": 0}
    top = below(tall + 1, generator) if tall or not modern else 0
    return {"top": top, "left": below(wide + 1, generator) if wide or not modern else 0}


def _base(operation: Any) -> _Sides | None:
    """Return the padding that comes first; None where it is not understood."""
    padding = operation.padding
    if padding is None:
        return (0, 0, 0, 0)
    if is_v2(operation):  # kept as left, right, top, bottom
        padding = [padding[0], padding[2], padding[1], padding[3]]
    edges = edges_of(padding, operation.padding_mode, (0,))
    return None if edges is None else (edges.left, edges.top, edges.right, edges.bottom)


def _sides(operation: Any, base: _Sides, tall: int, wide: int) -> Iterator[_Sides]:
    """Yield the paddings of an image in the order in which they are made: v1 widens last, v2 pads once."""
    left, top, right, bottom = base
    height, width = operation.size
    more_tall = max(0, height - tall - top - bottom) if operation.pad_if_needed else 0
    more_wide = max(0, width - wide - left - right) if operation.pad_if_needed else 0
    if is_v2(operation):
        base, more_tall, more_wide = (left + more_wide, top + more_tall, right + more_wide, bottom + more_tall), 0, 0
    for sides in (base, (more_wide, 0, more_wide, 0), (0, more_tall, 0, more_tall)):
        if any(sides):
            yield sides
