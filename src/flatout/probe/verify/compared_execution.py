"""One execution whose training is taken down step by step, to be compared with another one's.

All executions of a verification start from the same seeds and follow the same script; between two optimizer steps
everything that the training sees is noted (`probe.traces`), at the captured steps every tensor is compared
(`probe.replay`). Nothing here changes what the script computes, with three exceptions: replayed steps begin from the
baseline's state, the reference runs them in float64, and what a device drops out is the same for every type and layout
(`probe.dropout`).
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from flatout.probe.core.seams import Hits
from flatout.probe.verify import dropout
from flatout.probe.verify.after_steps import describe_checkpoint, dry_epoch
from flatout.probe.verify.capture import Capture, Tensors
from flatout.probe.verify.fingerprint import tensor_prints
from flatout.probe.verify.reference import Reference
from flatout.probe.verify.replay import CapturedSteps, Replay, nudge
from flatout.probe.verify.traces import TraceWatch
from flatout.schema.order import VerifyOrder
from flatout.schema.run import Step

__all__ = ["Verification"]

_MOST_STEPS = 20_000
_EPOCH_SHARE = 1 / 3  # of the time, for a second epoch to begin in
_IMPLEMENTATION = {"params", "foreach", "fused", "capturable", "differentiable"}  # how, not what, an optimizer computes


class Verification:
    """Takes one training down; the recorder of the process calls `step` and `finish`."""

    def __init__(self, recorder: Any, fixes: Callable[[], Any]) -> None:
        """Prepare for the order of `recorder`; `fixes()` says what each fix did."""
        self._recorder, self._fixes = recorder, fixes
        order: VerifyOrder = recorder.order.verify
        self._order = order
        self._write = recorder.write
        self._trace = TraceWatch(recorder.probes.event_log.thread, self._guarded)
        self._optimizers: dict[int, Any] = {}  # by identity, in the order of their first steps
        self._inside: list[int] = []
        self._num = 0
        self._groups: dict[int, Any] = {}
        self._named: dict[int, list[str]] = {}
        self._known: Capture | None = None
        self._known_by: tuple[int, ...] = ()
        self._before: list[torch.Tensor] = []
        self._began = 0.0
        self._trained: set[int] = set()  # loaders whose batches were trained on
        self._ended = self._second_epoch = False
        self._moved = False
        self._trouble = ""
        kinds: dict[str, type[CapturedSteps | Replay]] = {"baseline": CapturedSteps, "reference": Reference}
        self._replay = kinds.get(order.role, Replay)(order, recorder.rank, self._write)
        self._handles: list[Any] = []

    def install(self) -> None:
        """Seed what the script may draw from, and begin to follow it."""
        self._seed()
        dropout.install(self._recorder.probes.seams)
        modules = self._recorder.probes.modules
        modules.blind = self._order.role == "bare"
        if not modules.blind:
            self._trace.install(self._recorder.probes.seams)
        modules.on_root.append(lambda module: None)  # so that modules are looked for as soon as there is an optimizer
        modules.on_call = lambda module, arguments: self._guarded(lambda: self._called(module, arguments))
        self._recorder.probes.training.on_backward = lambda tensors: self._guarded(lambda: self._trace.loss(tensors))
        if isinstance(self._replay, Reference):
            self._trace.on_batch = self._reference_batch
            modules.around_always.append(self._replay.around)
        self._handles = [
            register_optimizer_step_pre_hook(lambda optimizer, *_: self._in_thread(self._begins, optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, *_: self._in_thread(self._ends, optimizer)),
        ]

    def _seed(self) -> None:
        """Start all random numbers from the order's seed: a script that seeds itself does so after this."""
        seed = self._order.seed
        torch.manual_seed(seed)
        random.seed(seed)
        with contextlib.suppress(ImportError):
            import numpy

            numpy.random.seed(seed)
            self._recorder.probes.seams.wrap("numpy.random:default_rng", _seeded(seed))

    # -- events -------------------------------------------------------------------------------------------------

    def _in_thread(self, act: Callable[[Any], None], optimizer: Any) -> None:
        if get_ident() == self._recorder.probes.event_log.thread:
            self._guarded(lambda: act(optimizer))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Do `act`; what fails is written down, ends the comparison, and leaves the training alone."""
        if self._trouble:
            return
        try:
            act()
        except Exception as error:
            self._trouble = f"{type(error).__name__}: {error}"[:300]
            self._write("trouble", {"text": self._trouble})

    def _called(self, module: Any, arguments: Any) -> None:
        if self._num == 0 and module.training and torch.is_grad_enabled() and not self._moved:
            self._first_forward()
        self._trace.called(module, arguments)

    def _first_forward(self) -> None:
        self._moved = True
        if self._order.role == "nudged":
            self._nudge()
        elif isinstance(self._replay, Reference) and not self._replay.active:
            self._replay.begin(0, self._capture())

    def _reference_batch(self, batch: Any) -> Any:
        assert isinstance(self._replay, Reference)
        if self._num == 0 and not self._moved and self._recorder.probes.modules.roots():
            self._guarded(self._first_forward)
        return self._replay.doubled(batch)

    def _begins(self, optimizer: Any) -> None:
        """An optimizer is about to act."""
        if id(optimizer) in self._inside:  # one that raised never came back
            self._inside.clear()
        self._inside.append(id(optimizer))
        if len(self._inside) > 1:
            return
        self._optimizers.setdefault(id(optimizer), optimizer)
        number = list(self._optimizers).index(id(optimizer))
        self._began = self._began or time.monotonic()
        parameters = list(_parameters(optimizer))
        self._trace.note("missing", sum(one.grad is None for one in parameters if one.requires_grad))
        if self._replay.wants(self._num):
            self._replay.before_step(self._num, self._capture(), number, self._trace.events)
        self._before = [one.detach().clone() for one in parameters]

    def _ends(self, optimizer: Any) -> None:
        """An optimizer has acted: the interval is over."""
        self._inside.pop()
        if self._inside:
            return
        number = list(self._optimizers).index(id(optimizer))
        after = [one.detach() for one in _parameters(optimizer)]
        moved = torch._foreach_norm(torch._foreach_sub(after, self._before)) if after else []
        update = float(torch.stack([one.double().cpu() for one in moved]).norm()) if moved else 0.0
        self._before = []
        if self._replay.wants(self._num):
            self._replay.after_step(self._num, self._capture(), number)
        self._close(number, optimizer, update, self._capture().of(number))

    def _close(self, number: int, optimizer: Any, update: float, parameters: Tensors) -> None:
        """Write the interval that ends here, and begin the next one."""
        capture = self._capture()
        events = self._trace.take()
        self._follow_epochs(events)
        groups = [_settings(group) for group in optimizer.param_groups] if optimizer is not None else []
        if self._groups.get(number) != groups:
            events["groups"] = self._groups[number] = groups
        held = {**parameters, **capture.rest}
        names = [capture.names[key] for key in held]
        if self._named.get(number) != names:
            events["names"] = self._named[number] = names
        body = {"step": self._num, "optimizer": number, "update": update, "prints": tensor_prints(list(held.values()))}
        self._write("interval", {**body, **events})
        self._num += 1
        wanted = self._replay.wants(self._num)
        if wanted:
            self._replay.begin(self._num, self._capture(anew=True))
        if self._order.role == "nudged" and (wanted or not self._order.nudge):
            self._nudge()

    def _follow_epochs(self, events: dict[str, list[Any]]) -> None:
        batches = {batch[0] for batch in events.get("batches", ())}
        self._ended |= any(end[0] in self._trained for end in events.get("ends", ()))
        self._second_epoch |= self._ended and bool(batches)
        if events.get("losses"):
            self._trained |= batches

    def _capture(self, *, anew: bool = False) -> Capture:
        """Return the tensors of the training, looked up again where there is something new."""
        modules = self._modules()
        known_by = (*self._optimizers, 0, *map(id, modules))
        if self._known is None or anew or known_by != self._known_by:
            self._known, self._known_by = Capture(self._optimizers.values(), modules), known_by
        return self._known

    def _modules(self) -> list[Any]:
        watch = self._recorder.probes.modules
        return list({id(module): module for module in (*watch.roots(), *watch.modules())}.values())

    def _nudge(self) -> None:
        capture = self._capture()
        nudge(capture.parameters or capture.rest, self._order.nudge, self._order.seed + self._num)

    # -- end ----------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> bool:
        """Take one finished training step; return True when enough steps were compared."""
        if not self._optimizers:  # no optimizer of torch: the training step is the interval
            self._began = self._began or time.monotonic()
            self._guarded(lambda: self._close(0, None, 0.0, {}))
        elapsed_s, order = time.monotonic() - self._began, self._order
        if self._trouble or elapsed_s >= order.max_s or self._num >= _MOST_STEPS:
            return True
        if isinstance(self._replay, Reference):
            return self._num > max(self._replay.steps, default=-1)
        if order.role != "baseline" or self._num < order.steps:
            return self._num >= order.steps
        return not self._trained or self._second_epoch or elapsed_s >= order.max_s * _EPOCH_SHARE

    def finish(self) -> None:
        """Write what is known at the end; the training is over."""
        for handle in self._handles:
            handle.remove()
        if self._order.role in ("baseline", "again", "candidate"):
            self._guarded(self._look_around)
        body = {"steps": self._num, "fixes": self._fixes(), "second_epoch": self._second_epoch, "ended": self._ended}
        self._write("verified", body)

    def _look_around(self) -> None:
        roots = self._recorder.probes.modules.roots()
        self._write("checkpoint", {"holds": describe_checkpoint(roots, self._optimizers.values())})
        for number in sorted(self._trained):
            loader = self._trace.loaders[number]()
            found = dry_epoch(loader, self._order.seed) if loader is not None else None
            if found is not None:
                self._write("dry", {"loader": number, **found})


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a parameter group that say what the optimizer computes: learning rate, momentum, ..."""
    found: dict[str, Any] = {"num_params": len(group["params"])}
    for name, value in group.items():
        if name in _IMPLEMENTATION:
            continue
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            found[name] = float(value)
        elif isinstance(value, bool | int | float | str | None):
            found[name] = value
        elif isinstance(value, list | tuple) and all(isinstance(item, int | float) for item in value):
            found[name] = list(value)
    return found


def _seeded(seed: int) -> Callable[[Callable[..., Any], Hits], Callable[..., Any]]:
    """Return what makes numpy's generators start from `seed` where the script leaves it to chance."""

    def make(original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def default_rng(seed_given: Any = None) -> Any:
            hits.count += 1
            return original([seed, hits.count] if seed_given is None else seed_given)

        return default_rng

    return make
