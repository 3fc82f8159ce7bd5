"""Operations of torchvision that take a batch of tensors as they take one."""

from typing import Any

from torch import Tensor

from flatout.pipeline.compile.kernels.core.kernel import Kernel, Unsuited
from flatout.pipeline.compile.kernels.core.strides import collated
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["checked", "whole"]


def whole(operation: Any, form: SampleForm) -> Kernel:
    """Return the kernel that gives the operation all images of [B, C, H, W] at once."""

    def run(batch: Tensor) -> Tensor:
        checked(operation, batch)
        return collated(operation(batch))

    return Kernel(type(operation).__name__, form, run)


def checked(operation: Any, batch: Tensor) -> None:
    """Raise `Unsuited` unless a sample has channels, height and width, and there is one.

    Videos are left out: the strides of a batch of them depend on those of each.
    """
    if batch.dim() != 4:
        raise Unsuited(f"{type(operation).__name__} is known for [C, H, W], not for {batch.dim() - 1} axes")
    if not batch.numel():
        raise Unsuited("an empty batch")
