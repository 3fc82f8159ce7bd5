"""All operations of a step but those of its backward pass, its optimizer and its loader, seen through a dispatch mode.

The mode is in force from the end of an optimizer's step to the next backward pass, or from the call of an outermost
module, whichever comes first: what is computed in modules, in losses and priors that have no parameters, and in plain
functions passes it. It is left where a loader makes workers, and while a trained module is evaluated.

Nor is it in force while a loader makes a batch: samples that write numbers into a tensor one by one took 20 times as
long under it. Where the input is followed, too, that ends for a loader whose batches take far longer than before.
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

_KNOWN = 4  # batches, after which a loader is taken for the training's: steps are watched that are not the first
_DEAR, _DEAR_NS = 4, 300_000_000  # times what a batch took before, and nanoseconds, above which it is too long


class BatchesInStretch:
    """Leaves a stretch for the batches of loaders, as far as their operations are not followed."""

    def __init__(self, stretch: "StepStretch", enter: Callable[[], None], follows: bool) -> None:
        """Take the stretch, what enters it, and whether operations of the training loader are followed."""
        self._stretch, self._enter = stretch, enter
        self._follows = follows
        self._left = False  # until the batch is made
        self._dear = False
        self.missed = False  # those of the training loader, in this stretch

    def begin(self) -> None:
        """A stretch begins."""
        self._left = self.missed = False

    def before_fetch(self, waits: int) -> None:
        """Leave the mode."""
        stretch, trains = self._stretch, waits >= _KNOWN
        if stretch.is_on and not (self._follows and trains and not self._dear):
            self.missed |= trains
            stretch.leave()
            self._left = not stretch.is_on

    def after_fetch(self, waits: int, wait_ns: int, taken_ns: int) -> None:
        """Go on where it was left; see whether batches under it take far longer."""
        if self._left:
            self._left = False
            self._enter()
        elif self._stretch.is_on and waits >= _KNOWN:
            self._dear |= taken_ns > max(_DEAR_NS, _DEAR * wait_ns / waits)


class StepStretch:
    """Puts a dispatch mode in force for the stretches of a step."""

    def __init__(self, event_log: EventLog, *, follows_input: bool = False) -> None:
        """Watch nothing yet; `follows_input`: operations of the training loader pass the mode, too."""
        self._event_log = event_log
        self.batches = BatchesInStretch(self, self._enter, follows_input)
        self._mode: TorchDispatchMode | None = None
        self.is_on = False
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
        self._event_log.events.fetch_listeners.append(self.batches)
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
        self.batches.begin()
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
        if self.is_on and not module.training and any(one.requires_grad for one in module.parameters()):
            self.leave()

    def leave(self, *_: Any) -> None:
        """Take the mode away, for now: a backward pass begins, say."""
        if not self.is_on or get_ident() != self._event_log.thread:
            return
        self.is_on = False
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
        if self.is_on or mode is None or self._stepping or get_ident() != log.thread or log.tracing.possible:
            return
        if torch._C._len_torch_dispatch_stack():
            return
        mode.__enter__()
        self.is_on = True

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
