"""`Normalize`, with the arithmetic of torchvision: subtract, then divide."""

from typing import Any

import torch
from torch import Tensor

from flatout.pipeline.compile.kernels.convert import as_it_is
from flatout.pipeline.compile.kernels.core.kernel import Kernel, Unsuited
from flatout.pipeline.compile.kernels.core.original import is_v2
from flatout.pipeline.compile.kernels.core.strides import collated
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["normalize"]


def normalize(operation: Any, form: SampleForm) -> Kernel | None:
    """Return the kernel of `Normalize` for tensors of [..., C, H, W]."""
    if form.kind != "tensor":
        return as_it_is(operation, form) if form.kind == "array" and is_v2(operation) else None

    made: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}  # making them takes as long as using them on a batch

    def moments(batch: Tensor) -> tuple[Tensor, Tensor]:
        kind = (batch.dtype, batch.device, batch.dim(), batch.shape[-3:-2])
        if kind not in made:
            made[kind] = _moments(operation, batch)
        return made[kind]

    def in_place(own: Tensor) -> None:
        mean, std = moments(own)
        own.sub_(mean).div_(std)

    def run(batch: Tensor) -> Tensor:
        mean, std = moments(batch)
        return collated(batch.sub(mean).div_(std))

    return Kernel("Normalize", form, run, in_place=in_place)


def _moments(operation: Any, batch: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation as torchvision makes them of what was given; neither widens the batch."""
    if not batch.is_floating_point() or batch.dim() < 4:
        raise Unsuited(f"Normalize takes floats of [..., C, H, W], not {batch.dtype} with {batch.dim() - 1} axes")
    mean = torch.as_tensor(operation.mean, dtype=batch.dtype, device=batch.device)
    std = torch.as_tensor(operation.std, dtype=batch.dtype, device=batch.device)
    for moment in (mean, std):
        if moment.dim() > 1 or moment.numel() not in (1, batch.shape[-3]):
            raise Unsuited(f"{tuple(moment.shape)} moments do not fit {batch.shape[-3]} channels")
    if bool((std == 0).any()):
        raise Unsuited("a standard deviation of zero")
    return _by_channel(mean), _by_channel(std)


def _by_channel(moment: Tensor) -> Tensor:
    return moment.view(-1, 1, 1) if moment.dim() == 1 else moment
