"""What a step of many small backward passes would take with its micro-batches put together.

A step whose outermost module is called from one line several times, each time followed by a backward pass, accumulates
gradients. What the module is given in one such step is kept, and when the script has ended, a copy of the module gets
the micro-batches one by one and put together, in turn. That is done only where rows do not depend on each other: the
outputs of the copy must agree, and no call may be given what an earlier call of the step has returned.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import psutil
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.user_places import user_stack
from flatout.probe.loader.repeated_samples import random_states_kept
from flatout.probe.model.model_copy import KeptCall, timed_pass
from flatout.schema.run import Frame, MicroBatches

__all__ = ["PROBE", "MicroBatchWatch"]

_LEAST = 4  # backward passes of a step
_STEPS = 2  # steps in a row that must be alike before one is kept
_LOOKED = 40  # steps after which it is known that none accumulates
_MOST = 512  # calls of a step that are kept
_PAIRS = 7
_LONGEST_S = 1.5
_OF_MEMORY = 0.25  # of what is free: for the graph of micro-batches put together
_CLOSE = 1e-3
_BATCH_STATISTICS = ("batchnorm", "instancenorm", "groupedbatch")

_Given = tuple[tuple[Any, ...], dict[str, Any]]


class StepCalls:
    """The calls with gradients of the step under way, and the backward passes."""

    def __init__(self) -> None:
        """There is none yet."""
        self.module = 0  # its identity
        self.place: tuple[tuple[str, int, str], ...] = ()
        self.calls = self.backwards = 0
        self.even = True  # each call is followed by a backward pass, and comes from the same line of the same module
        self.kept: list[KeptCall] = []
        self.returned: dict[int, StorageWeakRef] = {}  # memory of results; that of one that is gone is given out again
        self.alone = True  # no call was given what an earlier one returned

    def called(self, module: Any, place: tuple[tuple[str, int, str], ...]) -> None:
        """Take a call that begins."""
        same = not self.calls or (self.module, self.place[:1]) == (id(module), place[:1])
        self.even = self.even and same and self.calls == self.backwards
        self.module, self.place = id(module), place
        self.calls += 1

    @property
    def accumulates(self) -> bool:
        """Return whether the step was one of many micro-batches."""
        return self.even and self.alone and self.calls == self.backwards >= _LEAST


class MicroBatchWatch:
    """Keeps the micro-batches of one step, and times them later."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._now = StepCalls()
        self._alike = 0  # steps in a row that accumulate
        self._ended = False  # nothing is to be kept any more
        self._steps = 0
        self._whole: StepCalls | None = None  # a step that was kept
        self._found: MicroBatches | None = None

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or what keeps what it is given and looks at what it returns."""
        if self._ended or self._event_log.tracing.possible:
            return inner
        now = self._now
        if now.calls <= _MOST:
            now.called(module, user_stack(sys._getframe()))
        if self._alike < _STEPS or not now.even or now.calls > _MOST:
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):  # a probe ends no script
                self._keep(now, module, args, kwargs)
            result = inner(*args, **kwargs)
            with contextlib.suppress(Exception):
                now.returned |= {one.data_ptr(): StorageWeakRef(one) for one in _storages(result)}
            return result

        return call

    def _keep(self, now: StepCalls, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        known = (now.returned.get(one.data_ptr()) for one in _storages((args, kwargs)))
        again = any(one is not None and not one.expired() for one in known)
        if again or not KeptCall.possible(module, args, kwargs):
            now.alone = False
        if now.alone:
            now.kept.append(KeptCall(module, args, kwargs))

    def backward(self) -> None:
        """A backward pass begins."""
        self._now.backwards += 1

    def step(self, *_: object) -> None:
        """A step is over."""
        now, self._now = self._now, StepCalls()
        self._alike = self._alike + 1 if now.accumulates else 0
        self._steps += 1
        if not self._ended and now.accumulates and len(now.kept) == now.calls:
            self._whole = now
        self._ended = self._whole is not None or self._steps >= _LOOKED

    def measure(self) -> None:
        """Time the micro-batches that were kept, once the script's steps are over."""
        whole, self._whole = self._whole, None
        if whole is not None:
            with contextlib.suppress(Exception), random_states_kept():  # a model need not bear to be copied
                self._found = _compared(whole)

    def facts(self) -> MicroBatches | None:
        """Return what was measured; None where nothing is accumulated, or batches cannot be put together."""
        return self._found


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            yield leaf.untyped_storage()


def _compared(whole: StepCalls) -> MicroBatches | None:
    """Return what micro-batches take one by one and put together: medians of passes in turn."""
    model = whole.kept[0].copied()
    calls = [kept.given() for kept in whole.kept]
    if _uses_batch_statistics(model):
        return None
    together = _joined(calls[: _that_fit(model, calls)])
    if together is None or not _rows_are_alone(model, calls[: together[1]], together[0]):
        return None
    given, count = together
    taken: tuple[list[float], list[float]] = ([], [])
    begin = perf_counter()
    while len(taken[1]) <= _PAIRS and (len(taken[1]) < 2 or perf_counter() - begin < _LONGEST_S):
        taken[0].append(sum(timed_pass(model.forward, model, call) for call in calls[:count]) / count)
        taken[1].append(timed_pass(model.forward, model, given) / count)
    apart_s, together_s = (median(times[1:]) for times in taken)
    return MicroBatches(
        count=whole.calls,
        rows=_num_rows(calls[0]),
        joined=count,
        n=len(taken[1]) - 1,
        apart_s=apart_s,
        together_s=together_s,
        stack=tuple(Frame(*each) for each in whole.place),
    )


def _that_fit(model: Any, calls: list[_Given]) -> int:
    """Return how many micro-batches may be put together, by the memory that the graph of one takes."""
    saved = _Saved()
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor), torch.enable_grad():
        model.forward(*calls[0][0], **calls[0][1])
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    return min(len(calls), int(_OF_MEMORY * free / max(1, saved.num_bytes)))


class _Saved:
    """Counts the bytes that a graph keeps."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.num_bytes += tensor.numel() * tensor.element_size()
        return tensor


def _uses_batch_statistics(model: Any) -> bool:
    kinds = (type(inner).__name__.lower() for inner in model.modules() if inner.training)
    return any(name.startswith(_BATCH_STATISTICS) or "batchnorm" in name for name in kinds)


def _joined(calls: list[_Given]) -> tuple[_Given, int] | None:
    """Return the arguments of `calls` put together along the rows, and their number; None where that cannot be."""
    if len(calls) < 2:
        return None
    flat = [tree_flatten(call) for call in calls]
    spec = flat[0][1]
    if any(other != spec for _, other in flat[1:]):
        return None
    columns = list(zip(*(each for each, _ in flat), strict=True))
    if not all(map(_may_join, columns)):
        return None
    joined = [torch.cat(column) if isinstance(column[0], torch.Tensor) else column[0] for column in columns]
    given: _Given = tree_unflatten(joined, spec)
    return given, len(calls)


def _may_join(column: tuple[Any, ...]) -> bool:
    first = column[0]
    if not isinstance(first, torch.Tensor):
        return all(each == first for each in column[1:])
    return first.dim() > 0 and all(each.shape[1:] == first.shape[1:] for each in column)


def _rows_are_alone(model: Any, calls: list[_Given], given: _Given) -> bool:
    """Return whether what comes out is the same, put together or not; dropout is off meanwhile."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            apart = [[leaf for leaf in tree_leaves(model.forward(*a, **k)) if _is_float(leaf)] for a, k in calls]
            whole = [leaf for leaf in tree_leaves(model.forward(*given[0], **given[1])) if _is_float(leaf)]
        pairs = zip(zip(*apart, strict=True), whole, strict=True)
        return bool(whole) and all(_alike(torch.cat(parts), one) for parts, one in pairs)
    finally:
        model.train(training)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dim() > 0


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=_CLOSE, atol=_CLOSE)


def _num_rows(call: _Given) -> int:
    tensors = (leaf for leaf in tree_leaves(call) if isinstance(leaf, torch.Tensor) and leaf.dim() > 0)
    return next((len(tensor) for tensor in tensors), 0)


PROBE = Probe(
    name="micro-batches",
    make=lambda deep: MicroBatchWatch(deep.event_log),
    around=MicroBatchWatch.around,
    step=MicroBatchWatch.step,
    backward=lambda watch, tensor: watch.backward(),
    measure=lambda watch, causes: watch.measure(),
    trials={"micro_batches": MicroBatchWatch.facts},
    after=("uncompiled",),
)
