"""The seams of the training loop: backward, optimizer, gradient scaler, compiled functions."""

import contextlib
import gc
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Set
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from flatout.probe.core.event_log import EventLog, LoopEvents
from flatout.probe.core.seams import Hits, Seams, dressed
from flatout.probe.core.spans import BACKWARD, OPTIMIZER, TAIL
from flatout.probe.core.step_pattern import Event
from flatout.probe.core.user_places import caller
from flatout.probe.files.checkpoint_saves import SaveWatch
from flatout.probe.model.functional_backward import instead
from flatout.probe.model.losses import LIMIT, Losses
from flatout.probe.model.modules import ModuleWatch
from flatout.probe.model.optimizer_facts import optimizer_facts, parameters_of, sparse_weights
from flatout.schema.run import Frame, OptimizerFacts

__all__ = ["TrainingWatch"]

_LOOK_WITHOUT_OPTIMIZER = (2, 4, 8)  # backward passes after which they are looked for while no optimizer has stepped
_MOST_HELD = 512  # optimizers: one that is made for each batch would hold the batches, too
_LOOK_AFTER = (1, 2, 3, 4, 5, 8, 12)  # optimizer steps after which outermost modules are looked for again


class KnownOptimizers:
    """The optimizers of a training: the latest where there are very many."""

    def __init__(self, events: LoopEvents) -> None:
        """Know none yet; `events` tells what steps of one are."""
        self._loop = events
        self._made: dict[int, tuple[Any, Frame | None]] = {}
        self._turns: dict[int, int] = {}  # how often one stepped after another had
        self._let_go: list[OptimizerFacts] = []  # of a script that makes one after the other
        self._events: dict[int, tuple[Event, Event]] = {}  # begin and end of a step, by the optimizer's identity
        self._created: dict[int, Frame | None] = {}
        self._held: dict[int, tuple[int, int]] = {}
        self.over: weakref.WeakSet[Any] = weakref.WeakSet()  # optimizers of a training that is over

    def created(self, optimizer: Any) -> None:
        """Take one that was made, and where: in what has called the caller."""
        for known in (self._turns, self._held):
            known.pop(id(optimizer), None)  # of one that is gone, and had this place in memory
        if len(self._created) < 1000:
            self._created[id(optimizer)] = caller(3)

    @property
    def any_made(self) -> bool:
        """Whether the script has made one, which has perhaps not stepped yet."""
        return bool(self._created)

    def events_of(self, optimizer: Any) -> tuple[Event, Event]:
        """Return the events that a step of `optimizer` begins and ends."""
        number = id(optimizer)
        self._turns[number] = self._turns.get(number, 0) + 1
        if number not in self._events:
            if len(self._made) >= _MOST_HELD:
                oldest = next(iter(self._made))
                if len(self._let_go) < _MOST_HELD:
                    self._let_go.append(optimizer_facts(*self._made[oldest], self._turns[oldest]))
                del self._made[oldest], self._events[oldest]
            self._made[number] = (optimizer, self._created.get(number))
            self._events[number] = (self._loop.optimizer_begins(number), self._loop.optimizer_ends(number))
        return self._events[number]

    def parameters(self) -> set[int]:
        """Return the identities of the parameters that they have."""
        return {id(p) for made, _ in self._made.values() for p in parameters_of(made)}

    def held(self, number: int) -> tuple[int, int] | None:
        """Return how many tensors and numbers the optimizer with that identity holds; None of one that is not known."""
        if number not in self._held and number in self._made:
            parameters = list(parameters_of(self._made[number][0]))
            self._held[number] = len(parameters), sum(one.numel() for one in parameters)
        return self._held.get(number)

    def keep(self, numbers: Set[int]) -> None:
        """Hold on to these alone: the others belong to a training that is over."""
        self._let_go.clear()
        for number in self._made.keys() - numbers:
            with contextlib.suppress(TypeError):  # of a class that cannot be referred to weakly
                self.over.add(self._made[number][0])
            del self._made[number], self._events[number], self._turns[number]

    def optimizers(self) -> tuple[Any, ...]:
        """Return those that have made a step."""
        return tuple(optimizer for optimizer, _ in self._made.values())

    def describe(self, sparse: frozenset[int]) -> tuple[OptimizerFacts, ...]:
        """Return what is known of each that made a step."""
        held = self._made.items()
        return (*self._let_go, *(optimizer_facts(*made, self._turns.get(key, 0), sparse) for key, made in held))


class TrainingWatch:
    """Tells the step tracker what the training loop does."""

    def __init__(self, event_log: EventLog, modules: ModuleWatch, losses: Losses) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._modules = modules
        self._losses = losses
        self._known = KnownOptimizers(event_log.events)
        self._steps, self._backwards = Hits(), Hits()  # of optimizers
        self._handles: list[Any] = []
        self.on_backward: Callable[[Any], None] | None = None  # deep run: sees the tensor before its backward pass
        self.looks_early = True  # for modules, before the first step of an optimizer that was made
        self.saves = SaveWatch(event_log, lambda: self._steps.count + self._backwards.count)
        self.on_exit: Callable[[], None] | None = None
        self._watch_tracing: Callable[[], None] = lambda: None

    def install(self, seams: Seams) -> None:
        """Wrap what the loop calls; the optimizer's own global hooks mark its steps."""
        self._watch_tracing = lambda: self._event_log.tracing.watch(seams)
        self._watch_tracing()
        seams.wrap("torch.autograd:grad", instead(self._backward, self._event_log.tracker, lambda: self._backwards))
        seams.wrap("torch.autograd:backward", self._backward)  # Tensor.backward calls it too
        seams.wrap("torch.optim.optimizer:Optimizer.__init__", self._optimizer_made)
        seams.wrap("torch.optim.optimizer:Optimizer.zero_grad", self._as_optimizer)
        seams.wrap("torch.nn.utils:clip_grad_norm_", self._as_optimizer)
        seams.wrap("torch.nn.utils:clip_grad_value_", self._as_optimizer)
        seams.wrap("torch.amp.grad_scaler:GradScaler.step", self._scaler_step)
        self.saves.install(seams)
        seams.wrap("torch:compile", self._compile)
        seams.wrap("os:_exit", self._exit)
        self._hook_steps()

    def uninstall(self) -> None:
        """Take the optimizer's hooks away again; the seams undo themselves."""
        self._event_log.tracing.leave()
        while self._handles:
            self._handles.pop().remove()

    # -- backward -----------------------------------------------------------------------------------------------

    def _backward(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        event_log, kept, steps, tracing = self._event_log, self._losses.kept, self._steps, self._event_log.tracing
        record, now = event_log.record, event_log.now
        begins, ends = event_log.events.backward_begins, event_log.events.backward_ends
        inside, self._backwards = False, hits

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if (tracing.possible and is_dynamo_compiling()) or inside or get_ident() != event_log.thread:
                return original(tensors, *args, **kwargs)
            inside = True
            record((begins, now()))
            try:
                if self.on_backward is not None:
                    self.on_backward(tensors)
                result = original(tensors, *args, **kwargs)
                try:  # on the CPU reading is no wait, and a float is lighter to keep than a tensor
                    if len(kept) < LIMIT and (tensors.is_cpu or tensors.numel() == 1):
                        kept.append(tensors.item() if tensors.is_cpu else tensors.detach())
                except (AttributeError, RuntimeError):  # several tensors, no scalar
                    pass
            finally:
                inside = False
                moment = now()
                record((ends, moment))
            hits.count += 1
            early = self.looks_early or not self._known.any_made
            if not steps.count and hits.count in _LOOK_WITHOUT_OPTIMIZER and early:
                self._modules.look(set(_parameters_with_gradients()))
            if moment >= event_log.due:
                event_log.replay(within=BACKWARD)
            return result

        return backward

    # -- optimizer ----------------------------------------------------------------------------------------------

    def _optimizer_made(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            hits.count += 1
            self._watch_tracing()
            self._event_log.tracker.optimizers.number += 1
            self._known.created(optimizer)
            if self._modules.on_root:  # fixes want the modules before they are called for the first time
                self._modules.look({id(parameter) for parameter in parameters_of(optimizer)}, descend=False)

        return init

    def _hook_steps(self) -> None:
        """Mark the steps of every optimizer by torch's own global hooks."""
        event_log, events, tracing = self._event_log, self._event_log.events, self._event_log.tracing
        steps, backwards, record, now = self._steps, self._backwards, event_log.record, event_log.now
        inner, to_tail, events_of = events.enter[OPTIMIZER], events.leave_to[TAIL], self._known.events_of
        depth, began = 0, 0  # optimizer steps under way, backward passes when the outermost of them began
        latest, first, last = None, events.leave, events.leave  # the latest optimizer, its step's begin and end

        def begins(optimizer: Any, args: Any, kwargs: Any) -> None:
            nonlocal depth, began, latest, first, last
            if (tracing.possible and is_dynamo_compiling()) or get_ident() != event_log.thread:
                return
            if optimizer is not latest:
                latest, (first, last) = optimizer, events_of(optimizer)
            if depth and began == backwards.count:  # a step inside a step: of a base class, of a wrapped one
                depth += 1
                record((inner, now()))
            else:
                depth, began = 1, backwards.count
                record((first, now()))

        def ends(optimizer: Any, args: Any, kwargs: Any) -> None:
            nonlocal depth
            if (tracing.possible and is_dynamo_compiling()) or get_ident() != event_log.thread:
                return
            moment = now()
            depth -= 1
            if depth > 0:
                record((to_tail, moment))
                return
            depth = 0
            steps.count += 1
            record((last if optimizer is latest else events_of(optimizer)[1], moment))
            if steps.count <= _LOOK_AFTER[-1] and steps.count in _LOOK_AFTER:
                self._modules.look(self._known.parameters())
            if moment >= event_log.due:
                event_log.replay(within=OPTIMIZER)

        self._handles = [register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ends)]

    def _scaler_step(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        """A gradient scaler that skips the optimizer's step ends the training step all the same."""

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._steps.count
            hits.count += 1
            with self._event_log.span(self._event_log.events.enter[OPTIMIZER]):
                result = original(scaler, optimizer, *args, **kwargs)
            if self._steps.count == before and get_ident() == self._event_log.thread:
                event_log, number = self._event_log, id(optimizer)
                event_log.record((event_log.events.optimizer_begins(number), event_log.now()))
                event_log.record((event_log.events.optimizer_ends(number), event_log.now()))
            return result

        return step

    def _as_optimizer(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        event_log, tracing = self._event_log, self._event_log.tracing
        record, now = event_log.record, event_log.now
        begins, ends = event_log.events.enter[OPTIMIZER], event_log.events.leave

        def call(*args: Any, **kwargs: Any) -> Any:
            if (tracing.possible and is_dynamo_compiling()) or get_ident() != event_log.thread:
                return original(*args, **kwargs)
            hits.count += 1
            record((begins, now()))
            try:
                return original(*args, **kwargs)
            finally:
                record((ends, now()))

        return call

    # -- the rest -----------------------------------------------------------------------------------------------

    def _compile(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            result = original(model, *args, **kwargs)
            hits.count += 1
            plain = model is not None and not isinstance(model, torch.nn.Module | type)
            in_place = getattr(model, "__name__", "") == "_call_impl"  # Module.compile(): a module as any other
            if plain and not in_place and callable(result) and not isinstance(result, torch.nn.Module):
                wrapped = self._modules.compiled_function(result)
                return dressed(wrapped, result)
            return result

        return compile

    def _exit(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        pid = os.getpid()

        def leave(status: int) -> None:
            if self.on_exit is not None and os.getpid() == pid:
                self.on_exit()
            original(status)

        return leave

    def forget(self) -> None:
        """Hold on to no optimizer."""
        self._known.keep(frozenset())

    def held_by(self, optimizers: Set[int]) -> set[tuple[int, int]]:
        """Return what the optimizers with these identities hold: tensors, numbers."""
        return {held for number in optimizers if (held := self._known.held(number)) is not None}

    def stays(self, optimizers: Set[int]) -> None:
        """Another training has begun, which these make the steps of; the others are over."""
        self._known.keep(optimizers)

    def over(self) -> Collection[Any]:
        """Return the optimizers of a training that is over."""
        return self._known.over

    def optimizers(self) -> tuple[Any, ...]:
        """Return the optimizers that have made a step, the latest where there are very many."""
        return self._known.optimizers()

    def describe(self) -> tuple[OptimizerFacts, ...]:
        """Return what is known of every optimizer that made a step."""
        return self._known.describe(sparse_weights(self._modules.modules()))


def _parameters_with_gradients() -> Iterator[int]:
    """Yield the identities of the parameters that a backward pass has reached."""
    for thing in gc.get_objects():
        if type(thing) is torch.nn.Parameter and thing.grad is not None:
            yield id(thing)
