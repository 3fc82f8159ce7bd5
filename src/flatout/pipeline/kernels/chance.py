"""Random numbers for every sample of a batch, distributed as torchvision draws them one by one."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["first_fitting", "integers_below", "uniform"]


def uniform(num: int, limits: Sequence[float], generator: torch.Generator | None) -> Tensor:
    """Return `num` numbers between two limits: floats of 32 bits, as the originals draw, held in 64."""
    low, high = limits
    return torch.empty(num, dtype=torch.float32).uniform_(float(low), float(high), generator=generator).double()


def integers_below(limits: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return for each limit an integer from 0 on and below it; all are equally likely."""
    drawn = torch.rand(limits.shape, dtype=torch.float64, generator=generator)
    return (drawn * limits).long().clamp_(max=limits.long() - 1)


def first_fitting(fits: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each row of [num, tries] which try is the first that fits, and whether one does."""
    return fits.int().argmax(1), fits.any(1)
