"""Products of several matrices that end in a narrow one: from the right they take fewer multiplications.

`reach = a @ a @ a` and then `reach @ h`: the powers are as wide as the graph, `a @ (a @ (a @ h))` is as wide as `h`.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from flatout.probe.forward.form_trials import FormTrial
from flatout.schema.run import Frame

__all__ = ["ProductChain", "ProductChains"]

_PRODUCTS = ("mm", "bmm")
_VIEWS = ("detach", "alias", "view", "unsafe_view", "expand", "unsqueeze", "squeeze")
_WORTH = 1.5  # times as many multiplications
_LEAST = 2**20  # multiplications
_MOST_FACTORS = 12


@dataclass(frozen=True, slots=True)
class ProductChain:
    """Matrices multiplied from the left, by their shapes.

    Attributes:
        place: the line of the product with most multiplications.
        given: which of the different matrices each factor is.
        taken: nanoseconds of all products.
    """

    place: Frame | None
    shapes: tuple[tuple[int, ...], ...]
    learns: tuple[bool, ...]
    given: tuple[int, ...]
    dtype: torch.dtype
    taken: int
    num_bytes: int

    @property
    def words(self) -> str:
        """Return what it is."""
        sizes = " @ ".join("x".join(map(str, self.shapes[number][-2:])) for number in self.given)
        return f"the product {sizes}, from the left,"

    @property
    def trial(self) -> FormTrial:
        """Return what is to be timed."""
        return FormTrial(self.shapes, self.learns, self.dtype, self._left, (("the same from the right", self._right),))

    def _left(self, *matrices: torch.Tensor) -> torch.Tensor:
        first, *rest = (matrices[number] for number in self.given)
        for each in rest:
            first = first @ each
        return first

    def _right(self, *matrices: torch.Tensor) -> torch.Tensor:
        *rest, last = (matrices[number] for number in self.given)
        for each in reversed(rest):
            last = each @ last
        return last


@dataclass(slots=True)
class _Product:
    """A product of this step; `left` is its left factor, where that is a product, too."""

    left: "_Product | None"
    factors: list["_Factor"]
    size: int  # multiplications, of all products in it
    largest: tuple[int, Frame | None]  # multiplications of one product, and its line
    taken: int
    num_bytes: int
    uses: int = 0

    @property
    def parts(self) -> list["_Product"]:
        """The products that it begins with."""
        return [] if self.left is None else [self.left, *self.left.parts]


@dataclass(frozen=True, slots=True)
class _Factor:
    """A matrix: by its memory, so that views of one are one."""

    known: tuple[object, ...]
    shape: tuple[int, ...]
    learns: bool


class ProductChains:
    """The products of a step whose left factor is a product, too."""

    def __init__(self) -> None:
        """None was seen yet."""
        self._made: dict[int, tuple[weakref.ref[Any], _Product]] = {}
        self._ends: list[tuple[_Product, torch.dtype]] = []

    def note(self, name: str, args: Any, result: Any, taken: int, place: Callable[[], Any]) -> None:
        """Take one operation; `place()` gives the line that called it."""
        known = self._product(args[0]) if name.lstrip("_") in _VIEWS and args else None
        if known is not None and isinstance(result, torch.Tensor) and result.numel() == args[0].numel():
            self._made[id(result)] = weakref.ref(result), known
            return
        products = [each for each in (self._product(arg) for arg in _tensors(args)) if each is not None]
        for each in products:
            each.uses += 1
        if name in _PRODUCTS:
            self._multiply(args[0], args[1], result, taken, place)

    def _product(self, tensor: Any) -> _Product | None:
        ref, product = self._made.get(id(tensor), (None, None))
        return product if ref is not None and ref() is tensor else None

    def _multiply(self, left: Any, right: Any, result: Any, taken: int, place: Callable[[], Any]) -> None:
        size = left.numel() * right.shape[-1]
        own = (size, place() if size >= _LEAST else None)
        before, last, num_bytes = self._product(left), _factor(right), result.nbytes
        if before is None or len(before.factors) >= _MOST_FACTORS:
            made = _Product(None, [_factor(left), last], size, own, taken, num_bytes)
        else:
            largest = max(own, before.largest, key=lambda one: one[0])
            factors, size = [*before.factors, last], before.size + size
            made = _Product(before, factors, size, largest, before.taken + taken, before.num_bytes + num_bytes)
            if size >= max(_LEAST, _WORTH * _from_the_right(factors)):
                self._ends.append((made, result.dtype))
        self._made[id(result)] = weakref.ref(result), made

    @property
    def found(self) -> list[ProductChain]:
        """Those that are faster from the right, but for beginnings of others, and those of which a part is needed."""
        begun = {id(part) for made, _ in self._ends for part in made.parts}
        ends = [(made, dtype) for made, dtype in self._ends if id(made) not in begun]
        return [_chain(made, dtype) for made, dtype in ends if all(part.uses == 1 for part in made.parts)]


def _chain(made: _Product, dtype: torch.dtype) -> ProductChain:
    different = list(dict.fromkeys(made.factors))
    return ProductChain(
        place=made.largest[1],
        shapes=tuple(each.shape for each in different),
        learns=tuple(each.learns for each in different),
        given=tuple(different.index(each) for each in made.factors),
        dtype=dtype,
        taken=made.taken,
        num_bytes=made.num_bytes,
    )


def _factor(matrix: Any) -> _Factor:
    learns = matrix.requires_grad and torch.is_grad_enabled()
    known = (matrix.data_ptr(), matrix._version, matrix.stride())
    return _Factor(known, tuple(matrix.shape), learns)


def _from_the_right(factors: list[_Factor]) -> int:
    """Return the multiplications of a product from the right."""
    *rest, last = factors
    return sum(_numbers(each) * last.shape[-1] for each in rest)


def _numbers(factor: _Factor) -> int:
    return torch.Size(factor.shape).numel()


def _tensors(args: Any) -> list[Any]:
    flat = [each for arg in args for each in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    return [each for each in flat if isinstance(each, torch.Tensor)]
