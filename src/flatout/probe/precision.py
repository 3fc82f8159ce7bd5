"""What float64 costs a model: forward and backward of a copy of it, in both types in turn, in the deep run."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from flatout.probe.datasets import random_states_kept
from flatout.probe.tape import Tape
from flatout.schema.run import Narrower

__all__ = ["PrecisionWatch"]

_AT_CALL = 4  # by then what a model makes at its first pass is there
_PAIRS = 7
_LONGEST_S = 1.0
_ELEMENTS = 1 << 26  # of a model that is copied twice: 0.75 GB more at most

_Call = tuple[tuple[Any, ...], dict[str, Any]]


class PrecisionWatch:
    """Times one model that computes in float64 once more, and in float32."""

    def __init__(self, tape: Tape) -> None:
        """Watch nothing yet."""
        self._tape = tape
        self._calls: dict[int, int] = {}
        self._found: Narrower | None = None

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or for one call of a model of float64 what times its copies behind it."""
        calls = self._calls[id(module)] = self._calls.get(id(module), 0) + 1
        if calls != _AT_CALL or self._found is not None or self._tape.tracing.possible or not _may_copy(module):
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            result = inner(*args, **kwargs)
            with contextlib.suppress(Exception), random_states_kept():  # a model need not bear to be copied
                self._found = _compared(module, (args, kwargs))
            return result

        return call

    def facts(self) -> Narrower | None:
        """Return what was measured; None where no model computes in float64, or none could be copied."""
        return self._found


def _may_copy(module: Any) -> bool:
    numbers = [one for one in module.parameters() if one.dtype is torch.float64]
    return bool(numbers) and sum(one.numel() for one in numbers) <= _ELEMENTS


def _compared(module: Any, call: _Call) -> Narrower | None:
    """Return what a pass of each type takes: medians, the first of each left out."""
    wide, narrow = copy.deepcopy(module), copy.deepcopy(module).float()
    calls = _tensors_as(call, torch.float64), _tensors_as(call, torch.float32)
    taken: tuple[list[float], list[float]] = ([], [])
    begin = perf_counter()
    while len(taken[1]) <= _PAIRS and perf_counter() - begin < _LONGEST_S:
        for model, given, times in zip((wide, narrow), calls, taken, strict=True):
            times.append(_timed(model, given))
    n = len(taken[1]) - 1
    if n < 1:
        return None
    return Narrower(n=n, wide_s=median(taken[0][1:]), narrow_s=median(taken[1][1:]), model=type(module).__name__)


def _tensors_as(call: _Call, dtype: torch.dtype) -> _Call:
    def converted(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype is not torch.float64:
            return value
        return value.detach().to(dtype)

    converted_call: _Call = tree_map(converted, call)
    return converted_call


def _timed(model: Any, call: _Call) -> float:
    """Return the seconds of one forward and backward pass."""
    _wait()
    begin = perf_counter()
    with torch.enable_grad():
        results = list(_differentiable(model.forward(*call[0], **call[1])))
        if results:
            weights = [one for one in model.parameters() if one.requires_grad]
            total = torch.stack([one.sum() for one in results]).sum()
            _gradients(total, weights)
    _wait()
    return perf_counter() - begin


def _gradients(total: torch.Tensor, weights: list[torch.Tensor]) -> None:
    """Compute gradients the way torch's own engine is asked to, past what watches the training's backward passes."""
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward((total,), (torch.ones_like(total),), False, False, tuple(weights), True, False)


def _differentiable(results: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(results):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            yield leaf


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
