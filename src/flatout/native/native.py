"""Operations on images of bytes by compiled code, without the interpreter's lock; to the last bit what Pillow does.

An image goes through all operations that follow one another before the next, so that it stays in a core's cache. The
compiled part is optional: where there was no C compiler when flatout was installed, Pillow and torch do the same.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from flatout.native.operation import Operation
from flatout.native.pixels import channels_lead, image_of, write_pixels
from flatout.native.recycled_memory import RecycledMemory

try:
    from flatout.native import _native as compiled
except ImportError:  # no compiler when flatout was installed
    compiled = None  # type: ignore[assignment]

__all__ = [
    "Encoded",
    "Operation",
    "Program",
    "available",
    "compiled",
    "cut",
    "jitter",
    "look_up",
    "operated",
    "prepared",
    "resample",
    "resamples",
]

_RESAMPLE, _CUT, _JITTER, _LOOK_UP = range(4)  # as in native.c
_BILINEAR, _BICUBIC = 2, 3
_TALLEST = 100  # times as tall as wide: some Pillows take another way
_TRIED = (  # height and width before and after, of images that the order of the two passes matters for, and others
    ((9, 14), (5, 31)), ((17, 8), (11, 2)), ((28, 19), (12, 10)), ((12, 9), (6, 6)), ((12, 9), (7, 6)),
    ((7, 7), (16, 16)), ((40, 33), (16, 16)), ((1, 5), (4, 1)), ((23, 31), (23, 7)), ((6, 40), (17, 40)),
)  # fmt: skip

Encoded = tuple[int, int, int, int, int, int, int, int]
"""What the compiled code is given of operations and images: addresses, numbers and sizes (`Program.encode`)."""


def available() -> bool:
    """Tell whether there is a compiled part."""
    return compiled is not None


def resamples(pillow_filter: int) -> bool:
    """Tell whether images can be resized with this filter, by Pillow's number, as this Pillow does it."""
    return pillow_filter in (_BILINEAR, _BICUBIC) and _pillows_way(pillow_filter) is not None


def resample(boxes: Tensor, size: tuple[int, int], pillow_filter: int) -> Operation | None:
    """Return the operation that makes one window of each image one size; None where Pillow has to do it.

    Args:
        boxes: top, left, height and width of each window, within its image; [B, 4].
        size: height and width of the result.
        pillow_filter: Pillow's number of the filter.
    """
    heights, widths = boxes[:, 2], boxes[:, 3]
    if not resamples(pillow_filter) or min(size) < 1 or not bool((heights <= _TALLEST * widths).all()):
        return None
    settings = (pillow_filter == _BICUBIC, bool(_pillows_way(pillow_filter)))
    if bool((boxes == boxes[:1]).all()):
        return Operation(_RESAMPLE, size, settings, fixed=_whole(boxes[:1]))
    return Operation(_RESAMPLE, size, settings, _whole(boxes))


def cut(places: Tensor, size: tuple[int, int], fill: Sequence[int]) -> Operation | None:
    """Return the operation that takes a window of each image, fills it beyond the edges and then turns it round.

    Args:
        places: top and left of each window, whether it is mirrored, whether it is turned upside down; [B, 4].
        size: height and width of all windows.
        fill: one byte a channel.
    """
    if compiled is None or min(size) < 1:
        return None
    return Operation(_CUT, size, each=_whole(places), fixed=torch.tensor(fill, dtype=torch.uint8))


def jitter(order: Tensor, strengths: Tensor) -> Operation | None:
    """Return the operation that changes brightness, contrast, saturation and hue; then channels are first in memory.

    Args:
        order: for each image four numbers, 0 to 3, of the changes; [B, 4].
        strengths: of the four changes for each image, below zero for one that is not made; of hue the number of steps
            of which 255 go round; [B, 4].
    """
    if compiled is None:
        return None
    return Operation(_JITTER, each=_whole(order), other=strengths.to(torch.float32).contiguous())


def look_up(values: Tensor) -> Operation | None:
    """Return the operation that takes for each byte what a table has for it, the channels first.

    Args:
        values: [C, 256] of any type of 1, 2, 4 or 8 bytes, or [1, 256] for all channels; contiguous.
    """
    if compiled is None or values.element_size() not in (1, 2, 4, 8):
        return None
    stay = values.dtype is torch.uint8 and bool((values == torch.arange(256, dtype=torch.uint8)).all())
    step = 256 if len(values) > 1 else 0
    return Operation(_LOOK_UP, settings=(0 if stay else values.element_size(), step), fixed=values)


class Program:
    """Operations that follow one another, for the images of one batch."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        """Take at least one operation; a look-up is the last."""
        self._operations = _joined(operations)  # holds their memory
        rows = [
            (each.what, *(each.size or (0, 0)), *each.settings, *map(_address, (each.each, each.other, each.fixed)))
            for each in self._operations
        ]
        self._table = torch.tensor(rows, dtype=torch.int64)

    def new(self, batch: Tensor, number: int, memory: RecycledMemory) -> Tensor:
        """Return room in `memory` for what becomes of `number` images like those of `batch`, as it lies there."""
        (height, width), channels, last = self.size(batch), _channels(batch), self._operations[-1]
        if last.what == _LOOK_UP:
            assert last.fixed is not None
            return memory.empty((number, channels, height, width), last.fixed.dtype)
        if channels == 1 or self._leads(batch):
            return memory.empty((number, channels, height, width), torch.uint8)
        return memory.empty((number, height, width, channels), torch.uint8)

    def seen(self, batch: Tensor, out: Tensor) -> Tensor:
        """Return what `new` gave as images: [B, H, W] or [B, H, W, 3]; what was looked up as it is."""
        if self._operations[-1].what == _LOOK_UP:
            return out
        if batch.dim() == 3:
            return out[:, 0]
        return out.permute(0, 2, 3, 1) if self._leads(batch) else out

    def size(self, batch: Tensor) -> tuple[int, int]:
        """Return height and width of an image afterwards."""
        sizes = [each.size for each in self._operations if each.size is not None]
        return sizes[-1] if sizes else (batch.shape[1], batch.shape[2])

    def run(
        self,
        images: Tensor,
        rows: Tensor | None,
        first: int,
        last: int,
        out: Tensor,
        *,
        places: Tensor | None = None,
        threads: int = 1,
        waiting: bool = False,
    ) -> None:
        """Write what becomes of images `first` to `last` of the batch to their places in `out`.

        Args:
            images: those that `rows` (int64, contiguous) speaks of, of the whole batch; without it the batch, or one of
                one image.
            rows: for each image of the batch where in `images` it is.
            first: the first image.
            last: the one after the last.
            out: of the whole batch, or that `places` speaks of.
            places: for each image of the batch where in `out` it belongs (int64, contiguous); each must be there.
            threads: how many work on it, this one among them, where `first` is 0.
            waiting: they are those of torch, if it has any that are known: they are there at once.

        Raises:
            IndexError: of `rows` or `places` one lies elsewhere.
        """
        given = images[first:] if rows is None and len(images) > 1 else images
        compiled.operate(
            *self.encode(given), _address(rows), first, last, out.data_ptr(), out[:1].nbytes, len(out),
            _address(places), 0, threads, waiting,
        )  # fmt: skip

    @property
    def same_for_all(self) -> bool:
        """Return whether the same is done to every image, and to any number of them."""
        return all(each.each is None and each.other is None for each in self._operations)

    def from_rows(self, images: Tensor, like: Tensor) -> Callable[[Tensor, Tensor, int, bool], None]:
        """Return what does, of `rows`, `out`, `threads` and `waiting`, as `run(images, rows, 0, len(rows), out, ...)`.

        `like`: room for one image or more, as `new` gives it.
        """
        encoded, out_bytes = self.encode(images), like[:1].nbytes

        def run(rows: Tensor, out: Tensor, threads: int, waiting: bool) -> None:
            number = rows.shape[0]
            compiled.operate(
                *encoded, rows.data_ptr(), 0, number, out.data_ptr(), out_bytes, number, 0, 0, threads, waiting
            )

        return run

    def encode(self, images: Tensor) -> Encoded:
        """Return what the compiled code is given of the operations, and of images."""
        lying = (images.data_ptr(), images.shape[1], images.shape[2], _channels(images), int(channels_lead(images)))
        return (self._table.data_ptr(), len(self._table), *lying, len(images))

    def _leads(self, batch: Tensor) -> bool:
        return channels_lead(batch) or (batch.dim() == 4 and any(each.what == _JITTER for each in self._operations))


def _joined(operations: Sequence[Operation]) -> list[Operation]:
    """Return the same with windows that are turned round later turned at once."""
    made: list[Operation] = []
    for each in operations:
        last = made[-1] if made else each
        if made and last.what == each.what == _CUT and last.size == each.size and _turns_only(each):
            assert last.each is not None
            assert each.each is not None
            both = torch.cat((last.each[:, :2], last.each[:, 2:] ^ each.each[:, 2:]), 1).contiguous()
            made[-1] = Operation(_CUT, last.size, each=both, fixed=last.fixed)
        else:
            made.append(each)
    return made


def _turns_only(operation: Operation) -> bool:
    return operation.each is not None and not bool(operation.each[:, :2].any())


def operated(operation: Operation | None, batch: Tensor) -> Tensor | None:
    """Return what one operation makes of a batch of images; None without an operation, or for other values.

    Args:
        operation: as one of the functions above gives it.
        batch: [B, H, W] or [B, H, W, 3].
    """
    images = prepared(batch)
    if operation is None or images is None:
        return None
    program = Program([operation])
    out = program.new(images, len(images), RecycledMemory())
    program.run(images, None, 0, len(images), out)
    return program.seen(images, out)


def prepared(batch: Tensor) -> Tensor | None:
    """Return images as the compiled code takes them; None for what it does not take, or where there is none."""
    known = batch.dtype is torch.uint8 and batch.device.type == "cpu" and batch.dim() in (3, 4) and batch.numel()
    if compiled is None or not known or (batch.dim() == 4 and batch.shape[3] != 3):
        return None
    return batch if batch.is_contiguous() or channels_lead(batch) else batch.contiguous()


def _channels(batch: Tensor) -> int:
    return 1 if batch.dim() == 3 else 3


def _whole(numbers: Tensor) -> Tensor:
    return numbers.to(torch.int32).contiguous()


def _address(memory: Tensor | None) -> int:
    return 0 if memory is None else memory.data_ptr()


@lru_cache(maxsize=4)
def _pillows_way(pillow_filter: int) -> bool | None:
    """Return whether this Pillow makes tall images less tall before it makes them narrower; None for neither way."""
    if compiled is None:
        return None
    return next((way for way in (True, False) if _agrees(pillow_filter, way)), None)


def _agrees(pillow_filter: int, tallest_first: bool) -> bool:
    stream = torch.Generator().manual_seed(pillow_filter)
    for (height, width), size in _TRIED:
        for bands in ((), (3,)):
            some = torch.randint(0, 256, (1, height, width, *bands), generator=stream, dtype=torch.uint8)
            wanted = torch.empty((*size, *bands), dtype=torch.uint8)
            image = image_of(some[0].numpy(), "RGB" if bands else "L")
            write_pixels(image.resize(size[::-1], pillow_filter), wanted)
            box = torch.tensor([[0, 0, height, width]], dtype=torch.int32)
            made = operated(Operation(_RESAMPLE, size, (pillow_filter == _BICUBIC, tallest_first), box), some)
            if made is None or not torch.equal(made[0], wanted):
                return False
    return True
