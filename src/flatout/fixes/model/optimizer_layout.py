"""Keep an optimizer's state and gradients in the memory order of their weight, also once that order has changed.

This is not for speed alone: fused optimizers read memory in order and never ask for strides. With a weight
channels-last and its gradient or its momentum in the default order, torch's own for CPUs (2.13) silently mixes up
elements. Moments are in the default order after `load_state_dict()`, gradients where the script makes them itself.
"""

import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["OptimizerLayout"]


class OptimizerLayout:
    """Follows the steps of all optimizers while the fix is switched on."""

    def __init__(self, weights: Any, fail: Callable[[BaseException], None]) -> None:
        """Take the weights that are channels-last now, a mapping that changes, and who is told of a failure."""
        self._weights = weights
        self._fail = fail
        self._known: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()  # optimizers
        self._given: list[tuple[Any, Any]] = []  # weights and the script's own gradients, for the length of a step
        self._handles: list[Any] = []

    def follow(self) -> None:
        """Begin to follow the steps."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self._handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]

    def leave(self) -> None:
        """Put what optimizers keep, and gradients, in the order of weights that are in the usual one again."""
        import torch

        while self._handles:
            self._handles.pop().remove()
        for optimizer in list(self._known):
            for weight, state in optimizer.state.items():
                if getattr(weight, "ndim", 0) == 4 and weight not in self._weights and weight.is_contiguous():
                    for value in (weight.grad, *state.values()):
                        _lay_out(value, weight, torch.contiguous_format)

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        import torch

        self._known[optimizer] = True
        self._given.clear()
        if not self._weights:
            return
        try:
            for group in optimizer.param_groups:
                for weight in group["params"]:
                    if weight.dim() == 4 and weight in self._weights:
                        self._lend(weight, torch.channels_last)
                        for value in optimizer.state.get(weight, {}).values():
                            _lay_out(value, weight, torch.channels_last)
        except Exception as error:
            self._fail(error)

    def _lend(self, weight: Any, layout: Any) -> None:
        """Give the step a gradient laid out as the weight; the script's own may be part of something larger."""
        gradient = weight.grad
        if gradient is not None and not gradient.is_sparse and not gradient.is_contiguous(memory_format=layout):
            self._given.append((weight, gradient))
            weight.grad = gradient.contiguous(memory_format=layout)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        while self._given:
            weight, gradient = self._given.pop()
            weight.grad = gradient


def _lay_out(value: Any, weight: Any, layout: Any) -> None:
    if getattr(value, "shape", None) == weight.shape and not value.is_contiguous(memory_format=layout):
        value.data = value.data.contiguous(memory_format=layout)
