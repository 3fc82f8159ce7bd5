"""What compiled code is asked to do."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Operation"]


@dataclass(frozen=True)
class Operation:
    """One operation on every image of a batch, as the compiled code takes it.

    Attributes:
        what: which one.
        size: height and width of an image afterwards; None where they stay.
        settings: two numbers that it depends on.
        each: whole numbers of 32 bits, four for each image.
        other: more numbers for each image.
        fixed: what holds for all images.
    """

    what: int
    size: tuple[int, int] | None = None
    settings: tuple[int, int] = (0, 0)
    each: Tensor | None = None
    other: Tensor | None = None
    fixed: Tensor | None = None
