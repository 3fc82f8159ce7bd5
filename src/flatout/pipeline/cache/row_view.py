"""Rows of a store that are yet to be gathered, or written: who takes them may do it where they lie."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

__all__ = ["RowView", "WrittenRows"]


class WrittenRows:
    """Stands in for rows that are in their places already."""


@dataclass(frozen=True)
class RowView:
    """Some rows of a tensor, in an order of their own.

    Attributes:
        rows: all of them.
        places: which, int64, on the CPU, contiguous.
        gather: copies the rows at some places.
    """

    rows: Tensor
    places: Tensor
    gather: Callable[[Tensor], Tensor]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, some: slice) -> Tensor:
        return self.gather(self.places[some])

    def gathered(self) -> Tensor:
        """Return the rows, in memory of their own."""
        return self.gather(self.places)
