"""What one sample's value is between two operations, and many such values as one tensor."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatout.native.pixels import pixels_of, write_pixels
from flatout.native.recycled_memory import RecycledMemory

__all__ = ["BANDS", "SampleForm", "pack", "put", "unpack"]

BANDS = {"L": 1, "RGB": 3}  # PIL modes whose bytes are all there is to them; a palette or an alpha channel is more
_TENSOR_CLASSES = ("Image", "Video")


@dataclass(frozen=True)
class SampleForm:
    """What one sample's value is: a PIL image, a tensor or an array.

    Attributes:
        kind: `image`, `tensor` or `array`.
        mode: the mode of a PIL image (`L`, `RGB`); for tensors the name of torchvision's subclass (`Image`, `Video`),
            empty for a plain one; empty for arrays.
    """

    kind: str
    mode: str = ""


_IMAGES = {mode: SampleForm("image", mode) for mode in BANDS}


def pack(values: Sequence[object], memory: RecycledMemory | None = None) -> tuple[SampleForm, Tensor] | None:
    """Return the form of the values and all of them as one tensor; None where they are not of one known form.

    The tensor has one row a value: [B, H, W] uint8 for `L` images, [B, H, W, C] uint8 for others, [B, *shape] for
    tensors and arrays, with the strides that `default_collate` would give them. It shares no memory with the values;
    that of images comes from `memory`, where it is given.
    """
    forms = {_form(value) for value in values}
    form = forms.pop() if len(forms) == 1 else None
    if form is None:
        return None
    if form.kind == "image":
        images = pixels_of(values, memory or RecycledMemory())
        return None if images is None else (form, images)
    rows = [_row(form, value) for value in values]
    if any(row is None or not _alike(row, rows[0]) for row in rows):
        return None
    return form, torch.stack([row for row in rows if row is not None])


def put(form: SampleForm, value: Any, row: Tensor) -> bool:
    """Tell whether `value` is of this form and could be written to `row`, as `pack` would have it there."""
    found = _form(value)
    if found is not form and found != form:
        return False
    if form.kind == "image":
        value.load()  # its size may be known only now
        (width, height), bands = value.size, BANDS[form.mode]
        if row.dtype is not torch.uint8 or row.shape != ((height, width, bands) if bands > 1 else (height, width)):
            return False
        write_pixels(value, row, bands)
        return True
    made = _row(form, value)
    if made is None or not _alike(made, row):
        return False
    row.copy_(made)
    return True


def unpack(form: SampleForm, row: Tensor) -> object:
    """Return the sample's value again, equal to the last bit and sharing no memory with the batch.

    Args:
        form: what the value is.
        row: one row of a batch, as `pack` made it or a kernel left it, of any strides.
    """
    if form.kind == "image":
        from PIL import Image

        size = (row.shape[1], row.shape[0])
        return Image.frombytes(form.mode, size, row.contiguous().numpy().tobytes())
    if form.kind == "array":
        return row.clone().numpy()
    value = row.clone()
    return value.as_subclass(_tensor_class(form.mode)) if form.mode else value


def _form(value: Any) -> SampleForm | None:
    if isinstance(value, Tensor):
        return _form_of_tensor(value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and type(value) in (numpy.ndarray, numpy.memmap):
        return SampleForm("array")
    image = sys.modules.get("PIL.Image")
    return _IMAGES[value.mode] if image is not None and _is_plain_image(value, image) else None


def _is_plain_image(value: Any, image: Any) -> bool:
    """Tell whether the pixels are all that operations look at; a transparent colour in the header is not."""
    return isinstance(value, image.Image) and value.mode in BANDS and "transparency" not in value.info


def _form_of_tensor(value: Tensor) -> SampleForm | None:
    if value.layout is not torch.strided or value.requires_grad or value.is_quantized:
        return None
    if type(value) is Tensor:
        return SampleForm("tensor")
    name = type(value).__name__
    return SampleForm("tensor", name) if name in _TENSOR_CLASSES and type(value) is _tensor_class(name) else None


def _tensor_class(name: str) -> Any:
    module = sys.modules.get("torchvision.tv_tensors")
    return getattr(module, name, None)


def _row(form: SampleForm, value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value.as_subclass(Tensor) if form.mode else value
    import numpy

    array = numpy.asarray(value)
    if any(stride < 0 for stride in array.strides):
        array = numpy.ascontiguousarray(array)
    if not array.flags.writeable:  # torch warns, for it could write there; only read here, but the warning is public
        array = array.copy(order="K")
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # strings and objects, another machine's byte order
        return None


def _alike(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return False
    return one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
