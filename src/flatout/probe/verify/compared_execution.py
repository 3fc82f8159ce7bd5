"""One execution whose training is taken down step by step, to be compared with another one's.

All executions of a verification start from the same seeds and follow the same script; between two optimizer steps
everything that the training sees is noted (`probe.traces`), at the captured steps every tensor is compared
(`probe.replay`). Nothing here changes what the script computes, with four exceptions: replayed steps begin from the
baseline's state, the reference runs them in float64, what a device drops out is the same for every type and layout
(`probe.dropout`), and epochs may end early (`probe.loader.short_passes`).
"""

import contextlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from flatout.probe.core.seams import Hits
from flatout.probe.loader.short_passes import ShortPasses
from flatout.probe.model.modules import ModuleWatch
from flatout.probe.verify import dropout
from flatout.probe.verify.after_steps import describe_checkpoint, dry_epoch
from flatout.probe.verify.capture import Capture, Tensors
from flatout.probe.verify.fingerprint import tensor_prints
from flatout.probe.verify.printed_text import PrintedText
from flatout.probe.verify.reference import Reference
from flatout.probe.verify.replay import CapturedSteps, Replay, nudge
from flatout.probe.verify.saved_states import SavedStates
from flatout.probe.verify.traces import TraceWatch
from flatout.schema.order import VerifyOrder
from flatout.schema.ranks import is_rank
from flatout.schema.run import Step

__all__ = ["Verification"]

_MOST_STEPS = 20_000
_EPOCH_SHARE = 1 / 3  # of the time, for a second epoch to begin in
_EPOCH_ENDS = 3  # where passes end early: with fewer, a change at every one is not told from a change at one
_IMPLEMENTATION = {"params", "foreach", "fused", "capturable", "differentiable"}  # how, not what, an optimizer computes


class TrainingTensors:
    """The tensors of a training, and what a step of an optimizer does to its parameters."""

    def __init__(self, modules: ModuleWatch) -> None:
        """Take what finds the modules; no optimizer has made a step yet."""
        self.optimizers: dict[int, Any] = {}  # by identity, in the order of their first steps
        self._modules = modules
        self._known: Capture | None = None
        self._known_by: tuple[int, ...] = ()
        self._before: list[torch.Tensor] = []

    def number(self, optimizer: Any) -> int:
        """Return which of the optimizers it is."""
        return list(self.optimizers).index(id(optimizer))

    def capture(self, *, anew: bool = False) -> Capture:
        """Return the tensors of the training, looked up again where there is something new."""
        watch = self._modules
        modules = list({id(module): module for module in (*watch.roots(), *watch.modules())}.values())
        known_by = (*self.optimizers, 0, *map(id, modules))
        if self._known is None or anew or known_by != self._known_by:
            self._known, self._known_by = Capture(self.optimizers.values(), modules), known_by
        return self._known

    def step_begins(self, parameters: list[Any]) -> None:
        """Keep the values of the optimizer's parameters."""
        self._before = [one.detach().clone() for one in parameters]

    def step_ends(self, parameters: list[Any]) -> float:
        """Return by how much they have moved."""
        after = [one.detach() for one in parameters]
        moved = torch._foreach_norm(torch._foreach_sub(after, self._before)) if after else []
        self._before = []
        return float(torch.stack([one.double().cpu() for one in moved]).norm()) if moved else 0.0


class OutermostSteps:
    """Steps of optimizers in one thread, but for those inside another one's."""

    def __init__(self, begins: Callable[[Any], None], ends: Callable[[Any], None]) -> None:
        """Say `begins(optimizer)` and `ends(optimizer)`."""
        self._begins, self._ends = begins, ends
        self._inside: list[int] = []  # how deep in the stack those are that are under way
        self._handles: list[Any] = []

    def follow(self, within: Callable[[Callable[[Any], None], Any], None]) -> None:
        """Begin to follow them; `within(act, optimizer)` acts where that is wanted."""
        self._handles = [
            register_optimizer_step_pre_hook(lambda optimizer, *_: within(self._step_begins, optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, *_: within(self._step_ends, optimizer)),
        ]

    def leave(self) -> None:
        """Follow no more."""
        for handle in self._handles:
            handle.remove()

    def _step_begins(self, optimizer: Any) -> None:
        depth = self._left(sys._getframe())
        self._inside.append(depth)
        if len(self._inside) == 1:
            self._begins(optimizer)

    def _step_ends(self, optimizer: Any) -> None:
        begun = bool(self._inside)
        self._left(sys._getframe())
        if begun and not self._inside:
            self._ends(optimizer)

    def _left(self, frame: FrameType) -> int:
        """Return how deep `frame` is, after taking out what is no shallower: it has ended, or raised."""
        depth = 0
        while frame.f_back is not None:
            frame, depth = frame.f_back, depth + 1
        while self._inside and self._inside[-1] >= depth:
            self._inside.pop()
        return depth


class TrainingProgress:
    """How far a training is."""

    def __init__(self) -> None:
        """It has not begun."""
        self.intervals = 0
        self.trained: set[int] = set()  # loaders whose batches were trained on
        self.num_ended = 0  # passes over them
        self.second_epoch = False
        self._began = 0.0

    def begin(self) -> None:
        """Take down when the first step is made."""
        self._began = self._began or time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since."""
        return time.monotonic() - self._began

    def follow_epochs(self, events: dict[str, list[Any]]) -> None:
        """Take the events of an interval."""
        batches = {batch[0] for batch in events.get("batches", ())}
        self.num_ended += sum(end[0] in self.trained for end in events.get("ends", ()))
        self.second_epoch |= self.num_ended > 0 and bool(batches)
        if events.get("losses"):
            self.trained |= batches


class WrittenOptimizers:
    """What was written of each optimizer, which is written again only where it has changed."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._groups: dict[int, Any] = {}
        self._named: dict[int, list[str]] = {}

    def changes(self, number: int, groups: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
        """Return what is to be written now of the optimizer with that number."""
        found: dict[str, Any] = {}
        if self._groups.get(number) != groups:
            found["groups"] = self._groups[number] = groups
        if self._named.get(number) != names:
            found["names"] = self._named[number] = names
        return found


class Verification:
    """Takes one training down; the recorder of the process calls `step` and `finish`."""

    def __init__(self, recorder: Any, fixes: Callable[[], Any]) -> None:
        """Prepare for the order of `recorder`; `fixes()` says what each fix did."""
        self._recorder, self._fixes = recorder, fixes
        order: VerifyOrder = recorder.order.verify
        self._order = order
        self._trace = TraceWatch(recorder.probes.event_log.thread, self._guarded)
        self._tensors = TrainingTensors(recorder.probes.modules)
        self._steps = OutermostSteps(self._begins, self._ends)
        self._progress = TrainingProgress()
        self._written = WrittenOptimizers()
        self._moved = False
        self._trouble = ""
        kinds: dict[str, type[CapturedSteps | Replay]] = {"baseline": CapturedSteps, "reference": Reference}
        captured = 0 if is_rank() else recorder.rank  # ranks of ours are held against one process
        self._replay = kinds.get(order.role, Replay)(order, captured, recorder.write)

    def install(self) -> None:
        """Seed what the script may draw from, and begin to follow it."""
        self._seed()
        dropout.install(self._recorder.probes.seams)
        modules = self._recorder.probes.modules
        modules.blind = self._order.role == "bare"
        if self._order.pass_batches:
            thread = self._recorder.probes.event_log.thread
            short = ShortPasses(thread, self._order.pass_batches, first_whole=self._order.first_whole)
            short.install(self._recorder.probes.seams)
        self._follow_what_is_told()
        if not modules.blind:
            self._trace.install(self._recorder.probes.seams)
        self._recorder.probes.training.looks_early = False  # an edit may make fewer backward passes in the first step
        modules.on_root.append(lambda module: None)  # so that modules are looked for as soon as there is an optimizer
        modules.on_call = lambda module, arguments: self._guarded(lambda: self._called(module, arguments))
        self._recorder.probes.training.on_backward = lambda tensors: self._guarded(lambda: self._trace.loss(tensors))
        if isinstance(self._replay, Reference):
            self._trace.on_batch = self._reference_batch
            modules.around_always.append(self._replay.around)
        self._steps.follow(self._in_thread)

    def _follow_what_is_told(self) -> None:
        thread, seams = self._recorder.probes.event_log.thread, self._recorder.probes.seams
        PrintedText(thread, lambda line: self._trace.note("printed", line)).install(seams)
        SavedStates(thread, lambda state: self._trace.note("saved", state), self._guarded).install(seams)

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
            self._recorder.write("trouble", {"text": self._trouble})

    def _called(self, module: Any, arguments: Any) -> None:
        if self._progress.intervals == 0 and module.training and torch.is_grad_enabled() and not self._moved:
            self._first_forward()
        self._trace.called(module, arguments)

    def _first_forward(self) -> None:
        self._moved = True
        if self._order.role == "nudged":
            self._nudge()
        elif isinstance(self._replay, Reference) and not self._replay.active:
            self._replay.begin(0, self._tensors.capture())

    def _reference_batch(self, batch: Any) -> Any:
        assert isinstance(self._replay, Reference)
        if self._progress.intervals == 0 and not self._moved and self._recorder.probes.modules.roots():
            self._guarded(self._first_forward)
        return self._replay.doubled(batch)

    def _begins(self, optimizer: Any) -> None:
        """An optimizer is about to act."""
        self._tensors.optimizers.setdefault(id(optimizer), optimizer)
        self._progress.begin()
        parameters = list(_parameters(optimizer))
        self._trace.note("missing", sum(one.grad is None for one in parameters if one.requires_grad))
        num, number = self._progress.intervals, self._tensors.number(optimizer)
        if self._replay.wants(num):
            self._replay.before_step(num, self._tensors.capture(), number, self._trace.events)
        self._tensors.step_begins(parameters)

    def _ends(self, optimizer: Any) -> None:
        """An optimizer has acted: the interval is over."""
        num, number = self._progress.intervals, self._tensors.number(optimizer)
        update = self._tensors.step_ends(list(_parameters(optimizer)))
        if self._replay.wants(num):
            self._replay.after_step(num, self._tensors.capture(), number)
        self._close(number, optimizer, update, self._tensors.capture().of(number))

    def _close(self, number: int, optimizer: Any, update: float, parameters: Tensors) -> None:
        """Write the interval that ends here, and begin the next one."""
        capture, progress = self._tensors.capture(), self._progress
        events = self._trace.take()
        progress.follow_epochs(events)
        groups = [_settings(group) for group in optimizer.param_groups] if optimizer is not None else []
        held = {**parameters, **capture.rest}
        events |= self._written.changes(number, groups, [capture.names[key] for key in held])
        prints = tensor_prints(list(held.values()))
        body = {"step": progress.intervals, "optimizer": number, "update": update, "prints": prints}
        self._recorder.write("interval", {**body, **events})
        progress.intervals += 1
        wanted = self._replay.wants(progress.intervals)
        if wanted:
            self._replay.begin(progress.intervals, self._tensors.capture(anew=True))
        if self._order.role == "nudged" and (wanted or not self._order.nudge):
            self._nudge()

    def _nudge(self) -> None:
        capture = self._tensors.capture()
        nudge(capture.parameters or capture.rest, self._order.nudge, self._order.seed + self._progress.intervals)

    # -- end ----------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> bool:
        """Take one finished training step; return True when enough steps were compared."""
        progress = self._progress
        if not self._tensors.optimizers:  # no optimizer of torch: the training step is the interval
            progress.begin()
            self._guarded(lambda: self._close(0, None, 0.0, {}))
        elapsed_s, order = progress.elapsed_s, self._order
        if self._trouble or elapsed_s >= order.max_s or progress.intervals >= _MOST_STEPS:
            return True
        if isinstance(self._replay, Reference):
            return progress.intervals > max(self._replay.steps, default=-1)
        if order.role != "baseline" or progress.intervals < order.steps:
            return progress.intervals >= order.steps
        seen = progress.num_ended >= _EPOCH_ENDS if order.pass_batches else progress.second_epoch
        return not progress.trained or seen or elapsed_s >= order.max_s * _EPOCH_SHARE

    def finish(self) -> None:
        """Write what is known at the end; the training is over."""
        self._steps.leave()
        if self._order.role in ("baseline", "again", "candidate"):
            self._guarded(self._look_around)
        progress = self._progress
        whole = progress.second_epoch and (self._order.first_whole or not self._order.pass_batches)
        body = {"steps": progress.intervals, "fixes": self._fixes(), "second_epoch": whole}
        self._recorder.write("verified", body)

    def _look_around(self) -> None:
        roots = self._recorder.probes.modules.roots()
        self._recorder.write("checkpoint", {"holds": describe_checkpoint(roots, self._tensors.optimizers.values())})
        for number in sorted(self._progress.trained):
            loader = self._trace.loaders[number]()
            found = dry_epoch(loader, self._order.seed) if loader is not None else None
            if found is not None:
                self._recorder.write("dry", {"loader": number, **found})


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
