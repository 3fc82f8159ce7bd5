"""The pixels of Pillow's images, written into memory of ours.

Pillow gives an image's bytes away as new objects, joined of pieces: of an image of 500 x 375 in 472 fresh pages of
memory, which take as long as decoding it (2.45 ms in place of 1.17, n=400 JPEG files on an AMD EPYC). From version 11.2
on it also exports the memory that an image lies in, by Arrow's C data interface; compiled code copies from there.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from flatout.native.recycled_memory import RecycledMemory

__all__ = ["channels_lead", "image_of", "pixels_of", "write_pixels"]


def channels_lead(batch: Tensor) -> bool:
    """Tell whether the images of [B, H, W, C] lie in memory with the channels first."""
    return batch.dim() == 4 and not batch.is_contiguous() and batch.permute(0, 3, 1, 2).is_contiguous()


def image_of(array: Any, mode: str) -> Any:
    """Return a Pillow image of a contiguous array of bytes; it may share their memory and is for reading only."""
    from PIL import Image

    return Image.frombuffer(mode, (array.shape[1], array.shape[0]), array, "raw", mode, 0, 1)


def pixels_of(images: Sequence[Any], memory: RecycledMemory) -> Tensor | None:
    """Return the pixels of images of one size, [B, H, W, 3], or [B, H, W] of gray ones; None where sizes differ.

    Args:
        images: of mode `L` all, or `RGB` all; at least one.
        memory: where they are put.
    """
    for image in images:
        image.load()  # a size may be known only now
    width, height = images[0].size
    if any(image.size != (width, height) for image in images):
        return None
    made = memory.empty((len(images), height, width, *(3,) * (images[0].mode == "RGB")), torch.uint8)
    for image, row in zip(images, made, strict=True):
        write_pixels(image, row)
    return made


def write_pixels(image: Any, out: Tensor, bands: int = 0) -> None:
    """Write the pixels of an image of bytes, of one band or three, into contiguous bytes of that many.

    `bands`: how many it has, if that is known.
    """
    channels, (width, height) = bands or len(image.getbands()), image.size
    number = width * height
    if out.nbytes != number * channels or not out.is_contiguous():
        raise ValueError(f"{out.nbytes} bytes are no place for {number} pixels of mode {image.mode}")
    copy = _copy()
    if copy is None or not copy(image, number, channels, out):
        _by_pillow(image, out)


def _by_pillow(image: Any, out: Tensor) -> None:
    import numpy

    numpy.copyto(out.numpy().reshape(-1), numpy.frombuffer(image.tobytes(), numpy.uint8))


@lru_cache(maxsize=1)
def _copy() -> Callable[[Any, int, int, Tensor], bool] | None:
    """Return what copies the pixels that this Pillow exports; None where that cannot be, or gives other ones."""
    try:
        from flatout.native import _native as compiled
    except ImportError:  # no compiler when flatout was installed
        return None

    def copy(image: Any, number: int, channels: int, out: Tensor) -> bool:
        try:
            schema, array = image.__arrow_c_array__()
        except (AttributeError, ValueError):  # an older Pillow; more than 16 MB, which lie in several pieces
            return False
        return compiled.pixels(schema, array, number, channels, out.data_ptr())

    return (
        copy
        if all(_agrees(copy, *each) for each in (("L", 7, 5), ("RGB", 7, 5), ("RGB", 1, 1), ("HSV", 33, 64)))
        else None
    )


def _agrees(copy: Callable[[Any, int, int, Tensor], bool], mode: str, width: int, height: int) -> bool:
    from PIL import Image

    channels = len(mode) if mode != "L" else 1
    some = torch.randint(0, 256, (height, width * channels), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    image, out = Image.frombytes(mode, (width, height), some.numpy().tobytes()), torch.empty_like(some)
    return copy(image, width * height, channels, out) and torch.equal(out, some)
