"""Functions that take tensors past `__torch_function__`: where a resting parameter is among them, it is whole."""

from collections.abc import Callable
from typing import Any

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.ranks.local_rows import HERE
from flatout.ranks.sharded.resting import RestingParameter, without_transforms

__all__ = ["take_past_python"]

_TRANSFORMS = ("torch._functorch.eager_transforms:_wrap_for_grad", "torch._functorch.vmap:_add_batch_dim")


def take_past_python(seams: Seams) -> None:
    """Give whole parameters to functions of autograd that the script has written, and to transforms of functions."""
    seams.wrap("torch.autograd.function:Function.apply", _make_apply)
    for name in _TRANSFORMS:
        seams.wrap(name, _make_transform)


def _make_apply(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not any(isinstance(one, RestingParameter) for one in args):
            return original(cls, *args, **kwargs)
        hits.count += 1
        return HERE.sharding.touched(original, (cls, *args), kwargs)

    return apply


def _make_transform(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
    def wrap(tensor: Any, *args: Any) -> Any:
        if isinstance(tensor, RestingParameter):
            hits.count += 1
            with without_transforms():
                tensor = tensor.view_as(tensor)  # which holds its memory for as long as it is wrapped
        return original(tensor, *args)

    return wrap
