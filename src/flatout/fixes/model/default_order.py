"""Keep what shows a memory order, beside speed, as in the default order: views, and random numbers drawn in it.

A channels-last tensor cannot be viewed flat, and torch fills a mask in the order in which its input lies in memory, so
the same random state drops other elements. While a fix lays tensors out anew, masks are drawn as for the default order,
and a view that fails ends the fix: what is viewed is put in the default order in place.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flatout.fixes.model.saved_strides import usual_strides

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["DefaultOrder"]

_DROPOUTS = ("dropout", "alpha_dropout")
_LIKE = ("rand_like", "randn_like")
_UNVIEWED = "a line flattens a channels-last tensor with view"


class DefaultOrder:
    """Views and random numbers of a training whose tensors lie channels-last by a fix."""

    def __init__(self, site: "Site", weights: Mapping[Any, bool]) -> None:
        """Take the weights that are channels-last now, a mapping that changes."""
        import torch

        self._site = site
        self._weights = weights
        self._last = torch.channels_last
        self.acts = False  # whether the latest call of a module was given tensors that lie channels-last only by us
        self.inside = 0  # calls under way
        for name in _DROPOUTS:
            site.wrap(f"torch.nn.functional:{name}", self._dropout)
        for name in _LIKE:
            site.wrap(f"torch:{name}", self._like)
        site.wrap("torch:bernoulli", self._bernoulli)
        site.wrap("torch:Tensor.view", self._view)

    # -- random numbers -----------------------------------------------------------------------------------------

    def _ours(self, tensor: Any) -> bool:
        """Return whether `tensor` would lie in the usual order without the fix: in a call, or one made again later."""
        import torch
        from torch.compiler import is_dynamo_compiling

        if not self.acts or not isinstance(tensor, torch.Tensor) or tensor.dim() != 4 or tensor.is_contiguous():
            return False
        if not self.inside and (is_dynamo_compiling() or torch._C._current_graph_task_id() == -1):
            return False  # a checkpoint makes its call again in a backward pass
        return bool(tensor.is_contiguous(memory_format=self._last))

    def _dropout(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if not training or not self._ours(input):
                return original(input, p, training, inplace)
            dropped = original(input.contiguous(), p, training).contiguous(memory_format=self._last)
            return input.copy_(dropped) if inplace else dropped

        return dropout

    def _like(self, original: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        def like(input: Any, *args: Any, **kwargs: Any) -> Any:
            if args or "memory_format" in kwargs or not self._ours(input):
                return original(input, *args, **kwargs)
            drawn = original(input, memory_format=torch.contiguous_format, **kwargs)
            return drawn.contiguous(memory_format=self._last)

        return like

    def _bernoulli(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bernoulli(input: Any, *args: Any, **kwargs: Any) -> Any:
            return original(input.contiguous() if self._ours(input) else input, *args, **kwargs)

        return bernoulli

    # -- views --------------------------------------------------------------------------------------------------

    def _view(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def view(tensor: Any, *shape: Any, **kwargs: Any) -> Any:
            try:
                return original(tensor, *shape, **kwargs)
            except RuntimeError:
                if tensor.dim() != 4 or tensor.is_contiguous() or not self._weights:
                    raise
                viewed = self._put_right(tensor)
                if viewed is None:
                    raise
            return original(viewed, *shape, **kwargs)

        return view

    def _put_right(self, tensor: Any) -> Any:
        """End the fix; return what is to be viewed in place of `tensor`, None where nothing stands for it."""
        weight = next((each for each in self._weights if each.data_ptr() == tensor.data_ptr()), None)
        self._site.fail(_UNVIEWED)
        if weight is not None and weight is not tensor:  # `weight.data`, which the weight has left
            return weight.data
        if tensor.is_contiguous():
            return tensor
        if not tensor._is_view() and tensor.is_contiguous(memory_format=self._last):
            tensor.data = usual_strides(tensor.data)  # no copy: the script may write to the view
            return tensor
        return tensor.contiguous() if tensor.requires_grad and tensor.grad_fn is not None else None
