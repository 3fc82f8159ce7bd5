"""Dropout whose masks do not depend on the type or the layout of what they fall on: for executions that are compared.

On a CUDA device the values that a thread loads at a time decide which random number falls on which of them, so from
the same state bfloat16 gets another mask than float32, and so does a tensor in another order of memory. Two trainings
that differ in nothing else then have gradients half their norm apart (H200, n=1: at p=0.1 the two masks agree in 82% of
their values, and the gradient of the layer behind is off by 56%). While results are compared, masks on a device are
drawn for contiguous float32, in every execution alike. Attention draws inside its kernel: there it drops nothing.
"""

from collections.abc import Callable
from typing import Any

import torch

from flatout.probe.core.seams import Seams

__all__ = ["install"]


def install(seams: Seams, kind: str = "cuda") -> None:
    """Wrap the two functions through which modules and scripts drop out on devices of that kind."""
    seams.wrap("torch.nn.functional:dropout", lambda original, hits: _alike(original, kind))
    seams.wrap("torch.nn.functional:scaled_dot_product_attention", lambda original, hits: _nothing(original, kind))


def _alike(original: Callable[..., Any], kind: str) -> Callable[..., Any]:
    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        acts = isinstance(input, torch.Tensor) and training and 0 < p < 1 and input.device.type == kind
        if not acts or (input.dtype is torch.float32 and input.is_contiguous()):
            return original(input, p, training, inplace)
        mask = original(torch.ones(input.shape, dtype=torch.float32, device=input.device), p, True, False)
        return input.mul_(mask) if inplace else (input * mask).to(input.dtype)

    return dropout


def _nothing(original: Callable[..., Any], kind: str) -> Callable[..., Any]:
    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *args: Any, **kwargs: Any
    ) -> Any:
        dropped = 0.0 if query.device.type == kind else dropout_p
        return original(query, key, value, attn_mask, dropped, *args, **kwargs)

    return attention
