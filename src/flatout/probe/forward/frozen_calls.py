"""Calls of modules that learn nothing and draw nothing: the same rows in give the same rows out, in every epoch.

Such a module has parameters that no optimizer holds and no gradient reaches, whose values are the same at the end, and
nothing in it is random or counts batches as it is called. It is no copy of a model that is trained: an average of its
weights, or a target that is set from time to time, changes sooner or later. Outermost ones are called through
`ModuleWatch`; the largest ones inside trained models get a call of our own, where nothing is compiled. The rows of
their inputs are remembered by their contents, from step to step.
"""

import contextlib
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Any

import torch

from flatout.probe.core.probe import DeepContext, Probe
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.user_places import caller
from flatout.probe.loader.loading import tensors_in
from flatout.probe.model.module_calls import OwnCalls
from flatout.schema.run import Frame, FrozenCalls

__all__ = ["PROBE", "FrozenWatch"]

_FROM = 3  # the step at which modules inside others are looked for
_MOST_INSIDE = 8
_ROWS, _VALUES = 256, 512  # rows of a call, and values of a row, that are looked at
_LATEST = 8  # calls, of whose rows it is told how many were seen before
_MOST_KNOWN = 50_000
_FEW = 64  # values of a parameter
_RANDOM = (
    *(torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout),
    *(torch.nn.FeatureAlphaDropout, torch.nn.RReLU, torch.nn.SyncBatchNorm),
    *(torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d),
)


@dataclass(slots=True)
class _Calls:
    """The calls from one place."""

    module: str
    calls: int = 0
    taken: int = 0
    seen: dict[int, int] = field(default_factory=dict)  # rows, with the step that they were seen in first
    latest: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_LATEST))  # rows, and repeated ones
    row_bytes: int = 0
    output_bytes: int = 0
    check: Callable[[], bool] = lambda: True  # whether the weights are what they were at the first call


class FrozenWatch:
    """Clocks the calls of frozen modules."""

    def __init__(self, deep: DeepContext) -> None:
        """See nothing yet."""
        self._deep = deep
        self.trouble: Callable[[Exception], None] = deep.fail
        self._steps = 0
        self._calls: dict[Frame | None, _Calls] = {}
        self._own = OwnCalls()
        self._under_way = False

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return what clocks `inner`, a call of an outermost module, if that is frozen."""
        return partial(self._call, module, inner) if self._is_wanted(module) else inner

    def _is_wanted(self, module: Any) -> bool:
        if self._under_way or self._steps < _FROM or not self._deep.in_step() or not is_frozen(module):
            return False
        held = {
            id(one)
            for optimizer in self._deep.optimizers()
            for group in optimizer.param_groups
            for one in group["params"]
        }
        return not any(id(one) in held for one in module.parameters())

    def _call(self, module: Any, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        place = caller(2)
        self._under_way = True
        start = perf_counter_ns()
        try:
            outputs = inner(*args, **kwargs)
        finally:
            self._under_way = False
        taken = perf_counter_ns() - start
        with contextlib.suppress(Exception):  # tensors of any kind
            if place not in self._calls:
                self._begin(place, module)
            self._note(place, taken, (args, kwargs), outputs)
        return outputs

    def _begin(self, place: Frame | None, module: Any) -> None:
        before = _values(module)
        ref = weakref.ref(module)
        self._calls[place] = calls = _Calls(type(module).__name__)
        calls.check = lambda: (now := ref()) is None or _values(now) == before
        if any(_is_like(module, root) for root in self._deep.modules()):
            calls.check = lambda: False

    def _note(self, place: Frame | None, taken: int, given: Any, outputs: Any) -> None:
        calls = self._calls[place]
        calls.calls += 1
        calls.taken += taken
        first = next(tensors_in(given), None)
        if first is None or first.device.type != "cpu" or first.requires_grad or first.dim() == 0:
            return
        rows = first.detach()[:_ROWS].reshape(min(_ROWS, len(first)), -1)
        if not rows.numel():
            return
        rows = rows[:, :: 1 + rows.shape[1] // _VALUES].contiguous()
        calls.row_bytes = first[:1].nbytes
        out = next(tensors_in(outputs), None)
        calls.output_bytes = out.nbytes // max(1, len(first)) if out is not None else 0
        keys = [hash(row.tobytes()) for row in rows.view(torch.uint8).numpy()]
        calls.latest.append((len(keys), sum(calls.seen.get(key, self._steps) < self._steps for key in keys)))
        if len(calls.seen) < _MOST_KNOWN:
            calls.seen.update((key, self._steps) for key in keys if key not in calls.seen)

    @guarded
    def step(self, *_: object) -> None:
        """A step is over."""
        self._steps += 1
        if self._steps == _FROM and not self._deep.event_log.tracing.possible:
            inside = (one for root in self._deep.modules() if not is_frozen(root) for one in _frozen_inside(root))
            for module in itertools.islice(inside, _MOST_INSIDE):
                with contextlib.suppress(Exception):  # classes of any kind
                    self._follow(module)

    def _follow(self, module: Any) -> None:
        beneath = self._own.beneath(module)
        log = self._deep.event_log

        def call(*args: Any, **kwargs: Any) -> Any:
            inner = beneath(module) or module._call_impl
            if log.fetching or get_ident() != log.thread or not self._is_wanted(module):
                return inner(*args, **kwargs)
            return self._call(module, inner, *args, **kwargs)

        self._own.put(module, call)

    def stop(self) -> None:
        """The last step is over."""
        self._own.undo()

    def facts(self) -> tuple[FrozenCalls, ...]:
        """Return the places of such calls, that which took most first."""
        found = [
            FrozenCalls(
                place=place,
                module=calls.module,
                calls=calls.calls,
                steps=self._steps - _FROM,
                seconds=calls.taken / 1e9,
                rows=sum(rows for rows, _ in calls.latest),
                repeated=sum(repeated for _, repeated in calls.latest),
                row_bytes=calls.row_bytes,
                output_bytes=calls.output_bytes,
            )
            for place, calls in self._calls.items()
            if calls.check()
        ]
        return tuple(sorted(found, key=lambda each: -each.seconds)[:4])


def is_frozen(module: Any) -> bool:
    """Return whether a module has parameters, learns none of them, and gives the same for the same as it is now."""
    parameters = list(module.parameters())
    if not parameters or (torch.is_grad_enabled() and any(one.requires_grad for one in parameters)):
        return False
    return not any(inner.training and isinstance(inner, _RANDOM) for inner in module.modules())


def _is_like(module: Any, trained: Any) -> bool:
    """Return whether a module is one that is trained, or a part of one, copied."""
    shapes = [one.shape for one in module.parameters()]
    return any(
        type(inner) is type(module) and inner is not module and [one.shape for one in inner.parameters()] == shapes
        for inner in trained.modules()
        if any(one.requires_grad for one in inner.parameters())
    )


def _values(module: Any) -> tuple[float, ...]:
    """Return a few values of each parameter."""
    return tuple(float(one.detach().reshape(-1)[:_FEW].double().sum()) for one in module.parameters())


def _frozen_inside(module: Any) -> Iterator[Any]:
    """Yield the largest modules inside another whose parameters ask for no gradients."""
    for child in module.children():
        parameters = list(child.parameters())
        if parameters and not any(one.requires_grad for one in parameters):
            yield child
        else:
            yield from _frozen_inside(child)


PROBE = Probe(
    name="frozen-calls",
    make=FrozenWatch,
    step=FrozenWatch.step,
    stop=FrozenWatch.stop,
    around_always=FrozenWatch.around,
    causes={"frozen_calls": FrozenWatch.facts},
)
