"""One operation of a transform chain, done to a whole batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from flatout.pipeline.form import Form

__all__ = ["Draw", "Kernel", "Params", "RandomKernel", "Unsuited"]

Params = dict[str, Tensor]


class Unsuited(ValueError):
    """A batch of a type or shape for which the kernel would not give the original's bits, or the original fails."""


class Draw(Protocol):
    """Draws the parameters of an operation for every sample of a batch."""

    def __call__(self, num: int, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Params:
        """Return tensors with one row a sample, from torch's default generator unless another is given.

        Args:
            num: how many samples.
            shape: shape of the batch, its leading axis included; only the axes after it matter.
            generator: where the random numbers come from.
        """


@dataclass(frozen=True)
class Kernel:
    """A deterministic operation on a batch, equal to the original on each sample to the last bit and stride.

    Attributes:
        name: the original's, as a report shows it.
        after: what a sample is afterwards.
        run: takes the batch and gives a new one or a view of it; does not write to its input and treats every row
            alone, so that a batch may be cut in chunks; raises `Unsuited` for a batch it does not know.
        run_into: the same, written into a buffer of the result's shape, type and strides; None where nothing is won.
        view: the same values with whatever strides cost least; None where those of `run` do.
        in_place: the same done to a buffer of our own that holds the input; None where shape or type change.
    """

    name: str
    after: Form
    run: Callable[[Tensor], Tensor]
    run_into: Callable[[Tensor, Tensor], None] | None = None
    view: Callable[[Tensor], Tensor] | None = None
    in_place: Callable[[Tensor], None] | None = None


@dataclass(frozen=True)
class RandomKernel:
    """A random operation on a batch, with parameters of its own for every sample.

    Attributes:
        name: the original's, as a report shows it.
        after: what a sample is afterwards.
        draw: draws the parameters, distributed as the original's.
        run: applies them; rows, views and `Unsuited` as in `Kernel.run`.
        forced: applies the original operation to one sample's value with the parameters of sample `i`.
        exact: drawing for one sample takes from the generator what the original takes, in the same order, and gives
            what it would give.
    """

    name: str
    after: Form
    draw: Draw
    run: Callable[[Tensor, Params], Tensor]
    forced: Callable[[object, Params, int], object]
    exact: bool = False
