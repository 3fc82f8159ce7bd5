"""From images and arrays to tensors, and from one type of number to another."""

from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.compile.kernels.core.kernel import Kernel, Unsuited
from flatout.pipeline.compile.kernels.core.original import is_v2
from flatout.pipeline.compile.kernels.core.strides import collated
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["as_it_is", "convert_image_dtype", "pil_to_tensor", "to_dtype", "to_image", "to_tensor"]


def as_it_is(operation: object, form: SampleForm) -> Kernel:
    """Return the kernel of an operation that lets values of this form pass."""
    return Kernel(type(operation).__name__, form, _same, view=_same)


def to_tensor(operation: object, form: SampleForm) -> Kernel | None:
    """Return the kernel of `ToTensor`: channels first, and bytes as fractions of 255 of the default float type."""
    if form.kind == "tensor":
        return as_it_is(operation, form) if is_v2(operation) else None
    return Kernel("ToTensor", SampleForm("tensor"), _to_tensor, _to_tensor_into)


def pil_to_tensor(operation: object, form: SampleForm) -> Kernel | None:
    """Return the kernel of `PILToTensor`: channels first, bytes as they are."""
    if form.kind != "image":
        return as_it_is(operation, form) if is_v2(operation) else None
    return Kernel("PILToTensor", SampleForm("tensor"), _first, view=_channels_first)


def to_image(_operation: object, form: SampleForm) -> Kernel:
    """Return the kernel of `ToImage`: channels first, of torchvision's class for images."""
    if form.kind == "tensor":
        return Kernel("ToImage", SampleForm("tensor", form.mode or "Image"), _same, view=_same)
    return Kernel("ToImage", SampleForm("tensor", "Image"), _first, view=_channels_first)


def to_dtype(operation: Any, form: SampleForm) -> Kernel | None:
    """Return the kernel of `ToDtype` for one type of number."""
    if not isinstance(operation.dtype, torch.dtype):
        return None
    return _to(operation, form, "ToDtype", scale=bool(operation.scale))


def convert_image_dtype(operation: Any, form: SampleForm) -> Kernel | None:
    """Return the kernel of `ConvertImageDtype`."""
    return _to(operation, form, "ConvertImageDtype", scale=True)


def _to(operation: Any, form: SampleForm, name: str, scale: bool) -> Kernel | None:
    if form.kind != "tensor":
        return as_it_is(operation, form) if is_v2(operation) else None

    def run(batch: Tensor) -> Tensor:
        return collated(operation(batch))

    def run_into(batch: Tensor, out: Tensor) -> None:
        if not (scale and batch.dtype is torch.uint8 and out.is_floating_point()):
            out.copy_(operation(batch))
        elif is_v2(operation):
            out.copy_(batch.contiguous()).mul_(1.0 / 255)
        else:
            out.copy_(batch.contiguous()).div_(_number(255, out))

    return Kernel(name, form, run, run_into)


def _same(batch: Tensor) -> Tensor:
    return batch


def _channels_first(batch: Tensor) -> Tensor:
    if batch.dim() not in (3, 4):
        raise Unsuited(f"an image has 2 or 3 axes, not {batch.dim() - 1}")
    return batch.unsqueeze(1) if batch.dim() == 3 else batch.permute(0, 3, 1, 2)


def _first(batch: Tensor) -> Tensor:
    return collated(_channels_first(batch))


def _to_tensor(batch: Tensor) -> Tensor:
    if batch.dtype is not torch.uint8:
        return _first(batch)
    seen = _channels_first(batch)
    out = torch.empty(seen.shape, dtype=torch.get_default_dtype(), device=batch.device)
    _to_tensor_into(batch, out)
    return out


def _to_tensor_into(batch: Tensor, out: Tensor) -> None:
    out.copy_(_first(batch))  # sorting bytes and making floats of them takes half the time in two steps
    if batch.dtype is torch.uint8:
        out.div_(_number(255, out))


def _number(value: float, like: Tensor) -> float | Tensor:
    """Return a divisor; on a GPU a tensor, for there torch multiplies by the inverse of a plain number."""
    return value if like.device.type == "cpu" else torch.full((), value, dtype=like.dtype, device=like.device)
