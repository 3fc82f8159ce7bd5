"""One call of a model, kept to be made again on a copy of it when the script's steps are over.

A copy is no stranger to what it was copied from: hooks are functions that both call, and modules of several ranks talk
to each other. So models with hooks, all models of several ranks, calls with anything but tensors and plain values, and
those under autocast are left alone.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch
from torch.cuda import synchronize as _synchronize  # before any probe has wrapped it
from torch.utils._pytree import tree_leaves, tree_map

from flatout.pipeline.cache.ranks import local_ranks

__all__ = ["CallKeeper", "KeptCall", "timed_pass", "wait"]

_MOST_BYTES = 1 << 28  # of a model, and of what one call is given
_MOST_BYTES_ASIDE, _MOST_ITEMS = 1 << 20, 1000  # of an attribute that is neither parameter nor buffer
_LONGEST_S = 0.5  # of one call
_DEVICES = ("cpu", "cuda")
_PLAIN = (bool, int, float, str, type(None))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class KeptCall:
    """A module and what it was given once."""

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the module itself, and a copy of what it is given: a forward pass may write to it."""
        self.module, self.training = module, module.training
        self._took_s = 0.0
        self._given = args, kwargs
        self._given = self.given()

    @classmethod
    def possible(cls, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether a copy of `module` may be called as it is called now."""
        return _alone() and not _autocast() and _is_its_own(module) and _is_plain((args, kwargs))

    def made(self, inner: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call itself, and note how long it takes."""
        begin = perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            self._took_s = perf_counter() - begin

    @property
    def is_short(self) -> bool:
        """Return whether there is time to make it again a few times."""
        return self._took_s < _LONGEST_S

    def copied(self) -> Any:
        """Return a copy of the module, in training or not as it was then."""
        copied = copy.deepcopy(self.module)
        return copied if copied.training == self.training else copied.train(self.training)

    def given(self, dtype: torch.dtype = torch.float64) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a copy of what the call was given, its tensors of float64 in `dtype`."""

        def anew(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return value.detach().to(dtype if value.dtype is torch.float64 else value.dtype, copy=True)

        given: tuple[tuple[Any, ...], dict[str, Any]] = tree_map(anew, self._given)
        return given


class CallKeeper:
    """Keeps one call of one module: of the first that is wanted, the one of that number."""

    def __init__(self, at_call: int) -> None:
        """Keep nothing yet; calls are counted from 1, those of each module by themselves."""
        self._at_call = at_call
        self._calls: dict[int, int] = {}  # by the module's identity
        self.kept: KeptCall | None = None

    def around(
        self, module: Any, inner: Callable[..., Any], wanted: Callable[[], torch.nn.Module | None]
    ) -> Callable[..., Any]:
        """Return `inner`, or for the call to keep what keeps it: of what `wanted` gives, if that can be copied."""
        calls = self._calls[id(module)] = self._calls.get(id(module), 0) + 1
        if calls != self._at_call or self.kept is not None:
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):  # a probe ends no script
                of = wanted()
                if of is not None and KeptCall.possible(of, args, kwargs):
                    self.kept = KeptCall(of, args, kwargs)
            return inner(*args, **kwargs) if self.kept is None else self.kept.made(inner, args, kwargs)

        return call

    def take(self) -> KeptCall | None:
        """Return what was kept where there is time to make it again a few times, and keep it no longer."""
        kept, self.kept = self.kept, None
        return kept if kept is not None and kept.is_short else None


def wait() -> None:
    """Wait for a device, where one is in use."""
    if torch.cuda.is_initialized():
        _synchronize()


def _alone() -> bool:
    """Return whether no other rank waits for what this one does."""
    distributed = torch.distributed
    return local_ranks() == 1 and not (distributed.is_available() and distributed.is_initialized())


def _autocast() -> bool:
    return any(torch.is_autocast_enabled(kind) for kind in _DEVICES)


def _is_its_own(module: Any) -> bool:
    for inner in module.modules():
        if any(getattr(inner, name, None) for name in _HOOKS) or any(map(_is_large, vars(inner).values())):
            return False
    tensors = [*module.parameters(), *module.buffers()]
    return all(one.device.type in _DEVICES for one in tensors) and _num_bytes(tensors) <= _MOST_BYTES


def _is_large(value: Any) -> bool:
    """Return whether an attribute of a module, no parameter and no buffer, is too much to be copied with it."""
    if isinstance(value, (dict, list, tuple, set)):
        return len(value) > _MOST_ITEMS
    return int(getattr(value, "nbytes", 0) or 0) > _MOST_BYTES_ASIDE or isinstance(value, torch.utils.data.Dataset)


def _is_plain(call: tuple[Any, ...]) -> bool:
    leaves = tree_leaves(call)
    known = all(isinstance(leaf, (torch.Tensor, *_PLAIN)) for leaf in leaves)
    return known and _num_bytes([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]) <= _MOST_BYTES


def _num_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def timed_pass(forward: Callable[..., Any], model: Any, call: tuple[tuple[Any, ...], dict[str, Any]]) -> float:
    """Return the seconds of one pass, `forward` and the gradients of the weights of `model`."""
    wait()
    begin = perf_counter()
    with torch.enable_grad():
        results = list(_differentiable(forward(*call[0], **call[1])))
        if results:
            weights = [one for one in model.parameters() if one.requires_grad]
            _gradients(torch.stack([one.sum() for one in results]).sum(), weights)
    wait()
    return perf_counter() - begin


def _gradients(total: torch.Tensor, weights: list[torch.Tensor]) -> None:
    """Compute gradients as torch's own engine is asked to, past what watches the training's backward passes."""
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward((total,), (torch.ones_like(total),), False, False, tuple(weights), True, False)


def _differentiable(results: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(results):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            yield leaf
