"""All operations of a step but those of its backward pass, its optimizer and its loader, seen through a dispatch mode.

The mode is in force from the end of an optimizer's step to the next backward pass, or from the call of an outermost
module, whichever comes first: what is computed in modules, in losses and priors that have no parameters, and in plain
functions passes it. It is left where a loader makes workers, and while a trained module is evaluated.
"""

import os
import weakref
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from flatout.probe.core.event_log import EventLog
from flatout.probe.model.forward_pass import plain_on_cpu

__all__ = ["StepStretch"]


class StepStretch:
    """Puts a dispatch mode in force for the stretches of a step."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._mode: TorchDispatchMode | None = None
        self._on = False
        self._plain: bool | None = None  # whether the module that was called last is on the CPU, and not compiled
        self._depth = 0  # calls of outermost modules under way
        self._stepping = 0  # steps of optimizers under way

    @property
    def in_module(self) -> bool:
        """Return whether an outermost module is being called."""
        return self._depth > 0

    @property
    def is_open(self) -> bool:
        """Return whether operations count: a loader's are another matter."""
        return not self._event_log.fetching

    def install(self) -> None:
        """Be told of the steps of optimizers, and before this process forks.

        The hooks outlive the recording, and torch.compile goes through them when it reads a step: what they ask first
        is answered by the compiler, whatever this recording knows of it.
        """
        register_optimizer_step_pre_hook(lambda optimizer, *_: self._step_begins())
        register_optimizer_step_post_hook(lambda optimizer, *_: self._step_ends(optimizer))
        leave = weakref.WeakMethod(self.leave)

        def before_fork() -> None:
            ours = leave()
            if ours is not None:
                ours()

        os.register_at_fork(before=before_fork)

    def begin(self, mode: TorchDispatchMode | None) -> None:
        """Watch under `mode` from now on, or, where it is not known yet what runs, from the next stretch on.

        No more where it is None.
        """
        self.leave()
        self._mode = mode
        if self._plain:
            self._enter()

    def stop(self) -> None:
        """Watch no more. Hooks of optimizers stay: torch may be going through them, and does not take one that goes."""
        self.begin(None)

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return what is called in place of `inner`, the call of an outermost module that trains."""
        if self._plain is None or self._mode is not None:
            self._plain = plain_on_cpu(module, self._event_log)
        if self._mode is None or not self._plain:
            return inner
        self._enter()

        def call(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            try:
                return inner(*args, **kwargs)
            finally:
                self._depth -= 1

        return call

    def called(self, module: Any, *_: Any) -> None:
        """An outermost module is about to be called: one that trains may be evaluated."""
        if self._on and not module.training and any(one.requires_grad for one in module.parameters()):
            self.leave()

    def leave(self, *_: Any) -> None:
        """Take the mode away, for now: a backward pass begins, say."""
        if not self._on or get_ident() != self._event_log.thread:
            return
        self._on = False
        mode = self._mode
        others: list[Any] = []
        while torch._C._len_torch_dispatch_stack():  # the script may have entered modes of its own meanwhile
            top = torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1)
            top.__exit__(None, None, None)
            if top is mode:
                break
            others.append(top)
        for other in reversed(others):
            other.__enter__()

    def _enter(self) -> None:
        log, mode = self._event_log, self._mode
        if self._on or mode is None or self._stepping or get_ident() != log.thread or log.tracing.possible:
            return
        if torch._C._len_torch_dispatch_stack():
            return
        mode.__enter__()
        self._on = True

    def _step_begins(self) -> None:
        if not is_dynamo_compiling() and get_ident() == self._event_log.thread:
            self._stepping += 1
            self.leave()

    def _step_ends(self, optimizer: Any) -> None:
        if is_dynamo_compiling() or get_ident() != self._event_log.thread:
            return
        self._stepping = max(0, self._stepping - 1)
        if self._mode is not None and _is_on_cpu(group["params"] for group in optimizer.param_groups):
            self._enter()


def _is_on_cpu(groups: Iterable[Iterable[torch.Tensor]]) -> bool:
    return all(one.device.type == "cpu" for group in groups for one in group)
