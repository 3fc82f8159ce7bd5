"""Differences of all pairs of rows that are made as one large tensor, only to be added up to distances."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from flatout.probe.forward.form_trials import FormTrial, differences
from flatout.schema.run import Frame

__all__ = ["AllPairs", "PairsFollowed"]

_TIMES = 4  # as large as what it is made of
_LEAST_BYTES = 2**17
_ORDERS = {1: "abs", 2: "norm"}
_SIGN = ("neg", "detach", "alias")
_SCALES = ("mul", "div", "mul_", "div_")
_PICKS = ("topk", "sort", "kthvalue", "min", "max", "mode")  # give values and indices
_INDICES = ("argmin", "argmax", "argsort", "lt", "gt", "le", "ge", "eq", "ne", "detach")
_SAME_SIZE = (
    *("neg", "sqrt", "sqrt_", "clamp", "clamp_", "clamp_min", "clamp_min_", "add", "add_", "sub", "mul", "mul_", "div"),
    *("exp", "rsqrt", "pow", "log", "fill_", "masked_fill", "masked_fill_", "fill_diagonal_", "reciprocal", "div_"),
    *("relu", "where", "minimum", "maximum", "view", "unsqueeze", "squeeze", "transpose", "permute"),
)


@dataclass(slots=True)
class AllPairs:
    """The differences of one line, and what becomes of them."""

    place: Frame | None
    batch: int
    rows: tuple[int, int]
    learns: tuple[bool, bool]
    dtype: torch.dtype
    together: frozenset[int]  # dimensions that both have, counted from the last
    taken: int
    width: int = 0  # numbers of a row; 0: they are not added up
    power: str = ""
    picked: bool = False  # its indices are
    needed: bool = False  # its numbers are
    kept: bool = False  # the differences are used otherwise

    @property
    def only_picked(self) -> bool:
        """Return whether nothing but indices comes out of it."""
        return self.picked and not self.needed

    def trial(self) -> FormTrial | None:
        """Return what is to be timed; None where another form does not do."""
        if self.kept or not self.width or not self.power:
            return None
        return differences(
            self.batch, self.rows, self.width, self.power, self.learns, dtype=self.dtype, picked=self.only_picked
        )


class PairsFollowed:
    """Follows such differences through the operations of a step."""

    def __init__(self) -> None:
        """None was made yet."""
        self.found: list[AllPairs] = []
        self._at: dict[int, tuple[weakref.ref[Any], AllPairs, str]] = {}

    def note(self, name: str, args: Any, kwargs: Any, result: Any, taken: int, place: Callable[[], Any]) -> None:
        """Take one operation; `place()` gives the line that called it."""
        if name == "sub" and len(args) > 1 and isinstance(args[1], torch.Tensor) and self._begin(args, taken, place):
            self._follow(result, self.found[-1], "difference")
            return
        for position, pairs, stage in self._known(args):
            if stage in ("difference", "powered"):
                self._reduce(name, args, position, result, taken, pairs, stage)
            elif stage == "distance":
                self._use(name, args, position, result, pairs)
            elif name != "detach":  # the values beside the indices
                pairs.needed = True

    def _begin(self, args: Any, taken: int, place: Callable[[], Any]) -> bool:
        first, second = _sizes(args[0]), _sizes(args[1])
        length = max(len(first), len(second))
        first, second = ([1] * (length - len(each)) + each for each in (first, second))
        size = prod(map(max, first, second))
        if size < _TIMES * max(prod(first), prod(second)) or size * args[0].element_size() < _LEAST_BYTES:
            return False
        pairs = list(enumerate(zip(first, second, strict=True), -length))
        rows = prod(a for _, (a, b) in pairs if b == 1), prod(b for _, (a, b) in pairs if a == 1)
        together = frozenset(at for at, (a, b) in pairs if a == b > 1)
        if min(rows) < 2 or not together:
            return False
        learns = tuple(each.requires_grad and torch.is_grad_enabled() for each in args[:2])
        batch = prod(a for at, (a, _) in pairs if at in together)  # less the width of a row, once that is known
        self.found.append(AllPairs(place(), batch, rows, (learns[0], learns[1]), args[0].dtype, together, taken))
        return True

    def _known(self, args: Any) -> list[tuple[int, AllPairs, str]]:
        """Return what is followed among the arguments; -1 for the place of what stands in a list."""
        known = []
        for position, given in enumerate(args):
            ref, pairs, stage = self._at.get(id(given), (None, None, ""))
            if ref is not None and ref() is given and pairs is not None:
                known.append((position, pairs, stage))
            elif isinstance(given, (list, tuple)):  # of `cat`, of an index
                known += [(-1, pairs, stage) for _, pairs, stage in self._known(given)]
        return known

    def _follow(self, result: Any, pairs: AllPairs, stage: str) -> None:
        if isinstance(result, torch.Tensor):
            self._at[id(result)] = weakref.ref(result), pairs, stage

    def _reduce(
        self, name: str, args: Any, position: int, result: Any, taken: int, pairs: AllPairs, stage: str
    ) -> None:
        """Take an operation on differences, or on their squares."""
        whole = args[position] if position >= 0 else None
        if whole is None or name in ("detach", "alias"):
            pairs.kept = pairs.kept or whole is None
            return
        pairs.taken += taken
        if name in ("sum", "mean") and stage == "powered" and len(args) > 1:
            self._sum(whole, args[1], result, pairs)
        elif name == "linalg_vector_norm" and stage == "difference" and len(args) > 2:
            pairs.power = _ORDERS.get(args[1], "")
            self._sum(whole, args[2], result, pairs)
        elif stage == "difference" and _power(name, args):
            pairs.power = pairs.power or _power(name, args)
            self._follow(result, pairs, "powered")
        elif name in _SIGN or (name in _SCALES and _is_small(args, whole)):
            self._follow(result, pairs, stage)
        else:
            pairs.kept = True

    def _sum(self, whole: torch.Tensor, dims: Any, result: Any, pairs: AllPairs) -> None:
        over = {dim if dim < 0 else dim - whole.dim() for dim in dims or ()}
        if not over or not over <= pairs.together:
            pairs.kept = True
            return
        pairs.width = prod(whole.shape[dim] for dim in over)
        pairs.batch //= pairs.width
        self._follow(result, pairs, "distance")

    def _use(self, name: str, args: Any, position: int, result: Any, pairs: AllPairs) -> None:
        """Take an operation on distances."""
        if name in _INDICES:
            pairs.picked = pairs.picked or name != "detach"
        elif name in _PICKS and isinstance(result, (tuple, list)):
            pairs.picked = True
            self._follow(result[0], pairs, "value")
        elif position >= 0 and name in _SAME_SIZE and result.numel() == args[position].numel():
            self._follow(result, pairs, "distance")
        else:
            pairs.needed = True


def _sizes(tensor: Any) -> list[int]:
    """Return the sizes of a tensor, 1 where it is expanded."""
    if not isinstance(tensor, torch.Tensor):
        return []
    return [size if step else 1 for size, step in zip(tensor.shape, tensor.stride(), strict=True)]


def _power(name: str, args: Any) -> str:
    if name in ("pow", "pow_") and args[1] == 2:
        return "square"
    if name == "mul" and len(args) > 1 and args[0] is args[1]:
        return "square"
    return {"abs": "abs", "square": "square"}.get(name, "")


def _is_small(args: Any, whole: torch.Tensor) -> bool:
    others = [each for each in args if isinstance(each, torch.Tensor) and each is not whole]
    return len(args) > 1 and all(each.numel() * 64 <= whole.numel() for each in others)
