"""Random numbers that torch would draw one at a time, made many at a time: the same numbers, in the same order.

A call of torch for one number takes 3 to 4 us, most of it for the tensor around it. On the CPU each number of 32 bits,
of whatever kind, takes one output of the generator. So torch is asked from one place of its stream for many numbers of
each kind, and each draw takes what its kind has at the place where the stream stands. Nothing of torch's arithmetic is
written down again, but for whole numbers: their limit is another one each time, so the generator's outputs themselves
are put together of two remainders, and torch's remainder taken.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

__all__ = ["Draws", "are_as_torchs"]

_LOW = 1 << 27
"""Whole numbers below more come of two outputs in some versions of torch (`uniform_int_from_to_distribution`)."""

_PRIME = 37  # the least one above the 32 values that an output's five highest bits have
_INVERSE = pow(_LOW % _PRIME, -1, _PRIME)
_SPARE = 16


class Draws:
    """The next random numbers of a generator; it stands where they end when they are `finished`."""

    def __init__(self, generator: torch.Generator | None, number: int) -> None:
        """Draw from `generator`, or from torch's own; about `number` numbers will be asked for."""
        self._generator = torch.default_generator if generator is None else generator
        self._number = number + _SPARE
        self._taken = 0  # by the numbers made before
        self._begin()

    @property
    def num_taken(self) -> int:
        """Return how many numbers were drawn."""
        return self._taken + self._at

    def share(self) -> float:
        """Return a number from 0 on and below 1."""
        return self._next(None, lambda stream: torch.rand(self._number, generator=stream))

    def uniform(self, low: float, high: float) -> float:
        """Return a number between two."""
        return self._next((low, high), lambda stream: torch.empty(self._number).uniform_(low, high, generator=stream))

    def aspect(self, low: float, high: float) -> float:
        """Return a number whose logarithm is uniform between two."""
        return self._next(
            (low, high, "exp"), lambda stream: torch.empty(self._number).uniform_(low, high, generator=stream).exp()
        )

    def below(self, limit: int) -> int:
        """Return a whole number from 0 on and below the limit."""
        if limit > _LOW:
            return int(torch.randint(0, limit, (1,), generator=self.finished()).item())
        return int(self._next("output", self._outputs)) % limit

    def order(self, number: int) -> list[int]:
        """Return the numbers from 0 to `number` - 1 in an order drawn by lot."""
        order = list(range(number))
        for place in range(number - 1):
            other = place + self.below(number - place)
            order[place], order[other] = order[other], order[place]
        return order

    def finished(self) -> torch.Generator:
        """Return the generator, which stands behind the last number that was drawn."""
        if self._at:
            torch.rand(self._at, generator=self._generator)
        self._taken += self._at
        self._begin()
        return self._generator

    def _begin(self) -> None:
        self._at = 0
        self._state: Tensor | None = None
        self._made: dict[object, list[float]] = {}

    def _next(self, kind: object, make: Callable[[torch.Generator], Tensor]) -> float:
        if self._at >= self._number:
            self.finished()
        values = self._made.get(kind)
        if values is None:
            values = self._made[kind] = make(self._stream()).tolist()
        self._at += 1
        return values[self._at - 1]

    def _stream(self) -> torch.Generator:
        """Return a generator that stands where the numbers begin."""
        if self._state is None:
            self._state = self._generator.get_state()
        stream = torch.Generator()
        stream.set_state(self._state)
        return stream

    def _outputs(self, stream: torch.Generator) -> Tensor:
        low = torch.randint(0, _LOW, (self._number,), generator=stream)
        rest = torch.randint(0, _PRIME, (self._number,), generator=self._stream())
        return (rest - low) * _INVERSE % _PRIME * _LOW + low


def are_as_torchs() -> bool:
    """Tell whether numbers made many at a time are those that this torch draws one at a time."""
    return _agree(torch.get_default_dtype())


@lru_cache(maxsize=4)
def _agree(dtype: torch.dtype) -> bool:
    if dtype is not torch.float32:  # others take more outputs of the generator, or fewer bits
        return False
    one, many = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    draws = Draws(many, 60)  # fewer than are drawn
    return _one_at_a_time(one) == _many_at_a_time(draws) and torch.equal(one.get_state(), draws.finished().get_state())


def _one_at_a_time(generator: torch.Generator) -> list[object]:
    made: list[object] = []
    for number in range(_TRIED):
        low, high, limit = _limits(number)
        made += [
            torch.rand(1, generator=generator).item(),
            torch.empty(1).uniform_(low, high, generator=generator).item(),
            torch.exp(torch.empty(1).uniform_(-high, low, generator=generator)).item(),
            torch.randint(0, limit, (1,), generator=generator).item(),
            torch.randperm(2 + number % 4, generator=generator).tolist(),
        ]
    return made


def _many_at_a_time(draws: Draws) -> list[object]:
    made: list[object] = []
    for number in range(_TRIED):
        low, high, limit = _limits(number)
        made += [
            draws.share(),
            draws.uniform(low, high),
            draws.aspect(-high, low),
            draws.below(limit),
            draws.order(2 + number % 4),
        ]
    return made


_TRIED = 24


def _limits(number: int) -> tuple[float, float, int]:
    spread: Sequence[tuple[float, float]] = ((0.08, 1.0), (0.8, 1.2), (-15.0, 15.0), (0.28768207, 0.28768211))
    return (*spread[number % 4], 7919**number % _LOW + 1)
