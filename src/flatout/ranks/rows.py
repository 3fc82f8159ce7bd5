"""Rows of a batch by rank, and the dimension along which each tensor of a call is cut; no torch is needed for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Dim", "RowPlan", "Shape", "candidates", "joined_dim", "shares"]

Shape = tuple[int, ...]
Dim = int | None  # None: every rank gets the whole tensor

_MOST_CANDIDATES = 4  # each costs a forward and a backward pass


def shares(rows: int, ranks: int) -> tuple[int, ...]:
    """Return how many of `rows` each rank computes: in order, and as equal as they can be."""
    least, more = divmod(rows, ranks)
    return tuple(least + (rank < more) for rank in range(ranks))


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How the tensors of one kind of call are cut, by their number among the arguments.

    `draws`: whether random numbers of a form are drawn by rows in the call, as the trial on copies has found it.
    """

    dims: tuple[Dim, ...]
    draws: dict[Any, bool] = field(default_factory=dict, compare=False)

    def rows(self, shapes: Sequence[Shape | None]) -> int:
        """Return the rows of a call with tensors of these shapes, 0 where they do not agree on a number."""
        if len(shapes) != len(self.dims):
            return 0
        found = set()
        for shape, dim in zip(shapes, self.dims, strict=True):
            if dim is not None:
                found.add(shape[dim] if shape is not None and len(shape) > dim else 0)
        return found.pop() if len(found) == 1 else 0


def candidates(shapes: Sequence[Shape | None]) -> list[RowPlan]:
    """Return ways to cut a call with tensors of these shapes (None: no tensor), the most likely ones first.

    The rows are the first dimension of the first tensor in most scripts; of a sequence that runs along the first
    dimension they are the second one. Which of them is right is found by experiment.
    """
    found: list[RowPlan] = []
    for number, at, rows in _sizes(shapes):
        matching = tuple(_dim(shape, rows, at) for shape in shapes)
        alone = tuple(at if place == number else None for place in range(len(shapes)))
        for dims in (matching, alone):
            plan = RowPlan(dims)
            if plan not in found:
                found.append(plan)
    return found[:_MOST_CANDIDATES]


def _sizes(shapes: Sequence[Shape | None]) -> Iterator[tuple[int, int, int]]:
    """Yield what may be the number of rows, with the tensor and the dimension that say so."""
    seen = set()
    for at, least in ((0, 1), (1, 3)):  # the second dimension of a matrix holds features
        for number, shape in enumerate(shapes):
            if shape is not None and len(shape) >= least and shape[at] > 1 and (at, shape[at]) not in seen:
                seen.add((at, shape[at]))
                yield number, at, shape[at]


def _dim(shape: Shape | None, rows: int, first: int) -> Dim:
    """Return the dimension of `shape` that has `rows`, `first` before the other."""
    if shape is None:
        return None
    return next((at for at in (first, 1 - first) if len(shape) > at and shape[at] == rows), None)


def joined_dim(whole: Shape, part: Shape, rows: int, own: int) -> Dim:
    """Return the dimension along which parts of the ranks make the whole result, None where each has all of it.

    `whole` is the shape that all `rows` give, `part` the one that this rank's `own` rows give. A dimension may hold
    several entries for each row, as tokens of sentences in one long list.

    Raises:
        ValueError: the parts make no whole.
    """
    differing = [at for at, (one, other) in enumerate(zip(whole, part, strict=False)) if one != other]
    if len(whole) != len(part) or len(differing) > 1:
        raise ValueError(f"a result of shape {list(whole)} has the shape {list(part)} for {own} of {rows} rows")
    if not differing:
        return None
    (at,) = differing
    if whole[at] % rows or part[at] % own or whole[at] // rows != part[at] // own:
        raise ValueError(f"a result of shape {list(whole)} has the shape {list(part)} for {own} of {rows} rows")
    return at
