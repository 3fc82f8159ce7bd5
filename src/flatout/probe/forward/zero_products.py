"""Products with a matrix that stays the same and is nearly all zeros: an adjacency, an operator on a grid."""

import functools
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from flatout.probe.forward.form_trials import FormTrial
from flatout.schema.run import Frame

__all__ = ["ZeroProduct", "ZeroProducts"]

_MOST_FILLED = 0.1  # of a matrix that is nearly all zeros
_LEAST_NUMBERS = 2**14
_WORTH_NS = 30_000
_PRODUCTS = ("mm", "bmm", "addmm")


@dataclass(frozen=True, slots=True)
class ZeroProduct:
    """One such product."""

    place: Frame | None
    shape: tuple[int, int]
    filled: float  # share of its numbers that are not zero
    trial: FormTrial
    taken: int
    num_bytes: int

    @property
    def words(self) -> str:
        """Return what it is."""
        rows, columns = self.shape
        return f"a product with a {rows} x {columns} matrix, {100 * (1 - self.filled):.1f}% of which are zeros,"


class ZeroProducts:
    """The products of a step with matrices that were there before it."""

    def __init__(self) -> None:
        """None was seen yet."""
        self.found: list[ZeroProduct] = []
        self._made: dict[int, weakref.ref[Any]] = {}  # large results of this step
        self._filled: dict[int, tuple[weakref.ref[Any], int, float]] = {}  # by the identity of a matrix

    def note(self, name: str, args: Any, result: Any, taken: int, place: Callable[[], Any]) -> None:
        """Take one operation; `place()` gives the line that called it."""
        if isinstance(result, torch.Tensor) and result.numel() >= _LEAST_NUMBERS and not _is_view(result):
            self._made[id(result)] = weakref.ref(result)
        if name not in _PRODUCTS or taken < _WORTH_NS:
            return
        left, right = args[1:3] if name == "addmm" else args[:2]
        for matrix, other, on_left in ((left, right, True), (right, left, False)):
            flat = matrix[0] if matrix.dim() == 3 and len(matrix) == 1 else matrix
            if flat.dim() == 2 and self._is_nearly_zero(matrix, flat):
                filled = self._filled[id(_root(matrix))][2]
                trial = _trial(flat, other, on_left)
                size = 4 * (result.nbytes + matrix.nbytes + other.nbytes)
                self.found.append(ZeroProduct(place(), tuple(flat.shape), filled, trial, taken, size))
                return

    def _is_nearly_zero(self, matrix: Any, flat: Any) -> bool:
        """Return whether a matrix was made before this step, learns nothing, and is nearly all zeros."""
        root = _root(matrix)
        made = self._made.get(id(root))
        plain = flat.numel() >= _LEAST_NUMBERS and flat.layout is torch.strided and flat.dtype.is_floating_point
        if not plain or matrix.requires_grad or root.requires_grad or (made is not None and made() is root):
            return False
        ref, version, filled = self._filled.get(id(root), (None, -1, 1.0))
        now: int = root._version
        if ref is None or ref() is not root or version != now:
            filled = int(torch.count_nonzero(flat)) / flat.numel()
            self._filled[id(root)] = weakref.ref(root), now, filled
        return 0 < filled <= _MOST_FILLED


def _is_view(tensor: Any) -> bool:
    return tensor._base is not None


def _root(tensor: Any) -> Any:
    """Return the tensor that one is a view of."""
    return tensor if tensor._base is None else tensor._base


def _trial(matrix: Any, other: Any, on_left: bool) -> FormTrial:
    """Return the trial of a product against one with the matrix in compressed rows."""
    matrix = matrix.detach()
    learns = other.requires_grad and torch.is_grad_enabled()
    shape = tuple(other.shape[-2:])

    def written(x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(matrix, x) if on_left else torch.matmul(x, matrix)

    @functools.cache
    def compressed() -> torch.Tensor:
        with warnings.catch_warnings():  # that the layout is young
            warnings.simplefilter("ignore")
            rows: torch.Tensor = (matrix if on_left else matrix.mT).to_sparse_csr()
        return rows

    def by_rows(x: torch.Tensor) -> torch.Tensor:
        rows = compressed()
        return torch.matmul(rows, x) if on_left else torch.matmul(rows, x.mT).mT

    words = "with that matrix as `to_sparse_csr()`, made once,"
    return FormTrial((shape,), (learns,), matrix.dtype, written, ((words, by_rows),))
