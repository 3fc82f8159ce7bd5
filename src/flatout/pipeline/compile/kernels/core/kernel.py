"""One operation of a transform chain, done to a whole batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from flatout.native.operation import Operation
from flatout.pipeline.compile.rng import Generator
from flatout.pipeline.compile.sample_form import SampleForm

__all__ = ["Compiled", "Draw", "Drawn", "Kernel", "Params", "RandomKernel", "Unsuited", "collected"]

Drawn = dict[str, Any]
"""The parameters of one sample: plain numbers, lists of them, or tensors."""

Params = dict[str, Any]
"""The parameters of many samples: a tensor each with one row a sample, or a list of tensors."""


Compiled = Callable[[Tensor, bool, Params], Operation | None]
"""Makes the operation of compiled code for one batch of images of bytes: of their heights and widths, [B, 2], of
whether they have three channels, and of the parameters of all samples. None where there is none for such images."""


class Unsuited(ValueError):
    """A batch of a type or shape for which the kernel would not give the original's bits, or the original fails."""


class Draw(Protocol):
    """Draws the parameters of an operation for one sample."""

    def __call__(self, shape: tuple[int, ...], generator: Generator = None) -> Drawn:
        """Return plain numbers, from torch's default generator unless another is given.

        Args:
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
        compiled: the same as an operation of compiled code; None where there is none.
    """

    name: str
    after: SampleForm
    run: Callable[[Tensor], Tensor]
    run_into: Callable[[Tensor, Tensor], None] | None = None
    view: Callable[[Tensor], Tensor] | None = None
    in_place: Callable[[Tensor], None] | None = None
    compiled: Compiled | None = None


@dataclass(frozen=True)
class RandomKernel:
    """A random operation on a batch, with parameters of its own for every sample.

    Attributes:
        name: the original's, as a report shows it.
        after: what a sample is afterwards.
        draw_one: draws the parameters of one sample, distributed as the original's.
        run: applies them; rows, views and `Unsuited` as in `Kernel.run`.
        forced: applies the original operation to one sample's value with the parameters of sample `i`.
        exact: drawing takes from the generator what the original takes, in the same order, and gives what it would
            give.
        size: height and width of a sample afterwards; None where they stay.
        compiled: as in `Kernel`, with the parameters of all samples.
    """

    name: str
    after: SampleForm
    draw_one: Draw
    run: Callable[[Tensor, Params], Tensor]
    forced: Callable[[object, Params, int], object]
    exact: bool = False
    size: tuple[int, int] | None = None
    compiled: Compiled | None = None

    def draw(self, num: int, shape: tuple[int, ...], generator: Generator = None) -> Params:
        """Return the parameters of `num` samples, drawn one after the other as by `draw_one`."""
        return collected([self.draw_one(shape, generator) for _ in range(num)])

    def shape_after(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a batch afterwards."""
        if self.size is None:
            return shape
        first = 1 if self.after.kind == "image" else len(shape) - 2
        return (*shape[:first], *self.size, *shape[first + 2 :])


def collected(drawn: Sequence[Drawn]) -> Params:
    """Return the parameters of many samples together.

    What only some samples have has any value for the others; it is not looked at.
    """
    names = {name: value for each in drawn for name, value in each.items()}
    return {name: _column([each.get(name, value) for each in drawn], value) for name, value in names.items()}


def _column(values: list[Any], example: Any) -> Any:
    if isinstance(example, Tensor):
        return values
    return torch.tensor(values, dtype=torch.float64 if isinstance(example, float) else None)
