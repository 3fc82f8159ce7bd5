"""Random numbers for one sample, drawn as torchvision draws them: the same calls of torch, so the same numbers.

A number is drawn as a tensor of one element of torch's default type, and compared with a probability of that type.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from flatout.pipeline.compile.batched_draws import Draws
from flatout.pipeline.compile.kernels.core.original import is_v2

__all__ = ["Generator", "aspect", "below", "happens", "log_ratio", "order", "rounded", "share", "torchs", "uniform"]

Generator = torch.Generator | Draws | None
"""Where random numbers come from: a generator, its numbers made many at a time, or (None) torch's own generator."""


def share(generator: Generator) -> float:
    """Return a number from 0 on and below 1."""
    if isinstance(generator, Draws):
        return generator.share()
    return torch.rand(1, generator=generator).item()


def happens(probability: float, generator: Generator) -> bool:
    """Return whether what has this probability happens."""
    return share(generator) < rounded(probability)


def rounded(number: float) -> float:
    """Return the number as torch's default type has it."""
    return _rounded(float(number), torch.get_default_dtype())


@lru_cache(maxsize=256)
def _rounded(number: float, dtype: torch.dtype) -> float:
    return torch.tensor(number, dtype=dtype).item()


def uniform(limits: Sequence[float], generator: Generator) -> float:
    """Return a number between two."""
    low, high = limits
    if isinstance(generator, Draws):
        return generator.uniform(low, high)
    return torch.empty(1).uniform_(low, high, generator=generator).item()


def below(limit: int, generator: Generator) -> int:
    """Return a whole number from 0 on and below the limit."""
    if isinstance(generator, Draws):
        return generator.below(limit)
    return int(torch.randint(0, limit, (1,), generator=generator).item())


def order(number: int, generator: Generator) -> list[int]:
    """Return the numbers from 0 to `number` - 1 in an order drawn by lot."""
    if isinstance(generator, Draws):
        return generator.order(number)
    return torch.randperm(number, generator=generator).tolist()


def torchs(generator: Generator) -> torch.Generator | None:
    """Return torch's generator, where the next number is to be drawn by torch itself."""
    return generator.finished() if isinstance(generator, Draws) else generator


def log_ratio(operation: Any) -> tuple[float, float]:
    """Return the logarithms of the operation's two ratios as it has them: v2 keeps them, v1 makes them each time."""
    if is_v2(operation):
        low, high = operation._log_ratio.tolist()
        return low, high
    return _logarithms(tuple(operation.ratio), torch.get_default_dtype())


@lru_cache(maxsize=256)
def _logarithms(ratio: tuple[float, ...], dtype: torch.dtype) -> tuple[float, float]:
    low, high = torch.log(torch.tensor(ratio, dtype=dtype)).tolist()
    return low, high


def aspect(limits: Sequence[float], generator: Generator) -> float:
    """Return a number whose logarithm is uniform between two."""
    low, high = limits
    if isinstance(generator, Draws):
        return generator.aspect(low, high)
    return torch.exp(torch.empty(1).uniform_(low, high, generator=generator)).item()
