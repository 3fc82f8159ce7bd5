"""Models in DistributedDataParallel whose gradients are exchanged in the last of several calls."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flatout.fixes.core.site import Site

__all__ = ["LateExchange", "LateExchanges", "why_not"]


class LateExchange:
    """Counts the calls of a step, and averages what was left out where it is read earlier than expected."""

    def __init__(self, module: Any) -> None:
        """Know of no step yet: the first one is left as it is."""
        self.module = module
        self._of_step = self._expected = 0
        self._owes = False  # gradients hold something that was not exchanged

    def calls_for_exchange(self) -> bool:
        """Count a call whose backward pass exchanges gradients by itself; return whether this is one."""
        import torch

        asked = bool(self.module.require_backward_grad_sync and self.module.training and torch.is_grad_enabled())
        self._of_step += asked
        return asked

    @property
    def is_last(self) -> bool:
        """Whether this call is the last one of its step, as far as the step before can tell."""
        last = self._of_step >= self._expected
        self._owes = self._owes and not last
        return last

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """Make a call whose backward pass exchanges nothing; buffers are handed round by the next one all the same."""
        self._owes = True
        self.module.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.module.require_backward_grad_sync = True
            self.module.require_forward_param_sync = True

    def catch_up(self) -> None:
        """Average gradients that were not exchanged, where somebody is about to read them."""
        if self._owes:
            self._owes = False
            _average(self.module)

    def stepped(self, held: set[int]) -> None:
        """An optimizer that holds these parameters makes a step."""
        if self._of_step and any(id(one) in held for one in self.module.parameters()):
            self._expected, self._of_step = self._of_step, 0


class LateExchanges:
    """All such models of a process."""

    def __init__(self, site: "Site") -> None:
        """Know of none yet; what is left out is counted at `site`."""
        self._site = site
        self._models: dict[int, LateExchange] = {}

    def forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is called in place of `forward` of DistributedDataParallel."""

        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            found = self._of(module)
            if not (found.calls_for_exchange() and self._may(module)) or found.is_last:
                return original(module, *args, **kwargs)
            self._site.hit("exchange")
            with found.left_out():
                return original(module, *args, **kwargs)

        return forward

    def reader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is called in place of a function that reads gradients."""

        def read(*args: Any, **kwargs: Any) -> Any:
            self._catch_up()
            return original(*args, **kwargs)

        return read

    def stepping(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Follow an optimizer that is about to step."""
        import torch

        if torch.compiler.is_compiling():
            return
        self._catch_up()
        held = {id(one) for group in optimizer.param_groups for one in group["params"]}
        for found in self._models.values():
            found.stepped(held)

    def _of(self, module: Any) -> LateExchange:
        found = self._models.get(id(module))
        if found is None or found.module is not module:
            found = self._models[id(module)] = LateExchange(module)
        return found

    def _may(self, module: Any) -> bool:
        reason = why_not(module) if self._site.enabled else ""
        if reason:
            self._site.stand_back(reason)
        return self._site.enabled and not reason

    def _catch_up(self) -> None:
        for found in self._models.values():
            found.catch_up()


def why_not(module: Any) -> str:
    """Return why exchanges of `module` are left as they are, "" where nothing speaks against it."""
    if module.static_graph:
        return "the model has a static graph"
    if module._comm_hooks:
        return "a hook of the script's own exchanges the gradients"
    if any(one._backward_hooks or one._post_accumulate_grad_hooks for one in module.parameters()):
        return "hooks on parameters read their gradients"
    if any(hasattr(one, "_in_backward_optimizers") for one in module.parameters()):
        return "an optimizer steps during the backward pass"
    return ""


def _average(module: Any) -> None:
    """Average the gradients of all ranks as an exchange does: one that no rank has stays None."""
    import torch

    group, size = module.process_group, torch.distributed.get_world_size(module.process_group)
    kinds: dict[Any, list[Any]] = {}
    for one in module.parameters():
        if one.requires_grad:
            kinds.setdefault((one.device, one.dtype), []).append(one)
    with torch.no_grad():
        for same in kinds.values():
            own = [one.grad if one.grad is not None else torch.zeros_like(one) for one in same]
            there = own[0].new_tensor([float(one.grad is not None) for one in same])
            flat = torch.cat([*(grad.reshape(-1) for grad in own), there])
            torch.distributed.all_reduce(flat, group=group)
            shared, at = flat[-len(own) :].tolist(), 0
            for one, grad, anywhere in zip(same, own, shared, strict=True):
                if anywhere:
                    grad.copy_(flat[at : at + grad.numel()].view(grad.shape) / size)
                    one.grad = grad
                at += grad.numel()
