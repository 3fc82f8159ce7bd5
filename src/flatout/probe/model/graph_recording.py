"""What it costs to record graphs that no backward pass uses: passes of a copy of the model with gradients and without.

Passes in a row that is more than twice as long as those of a training step, before their backward pass, are validation.
Whether the script lets go of their graphs matters more than their making: graphs that pile up live in memory that is
fresh each time. So a mark is hung on each, and where many were seen alive together as many are kept when the passes are
made again, after the last step.
"""

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import psutil
import torch
from torch.utils._pytree import tree_leaves

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.loader.repeated_samples import random_states_kept
from flatout.probe.model.model_copy import KeptCall, wait
from flatout.schema.run import UnusedGraphs

__all__ = ["PROBE", "GraphWatch"]

_MARK = "flatout-pass"  # a key of its own: losses carry another mark (`retention`)
_LEAST_ROW = 8
_STEPS = 3  # rows that ended with a backward pass, before which nothing is known of a step
_MOST_KEPT = 64
_ALONE = 4  # passes of a block where graphs are let go
_PAIRS = 5
_LONGEST_S, _LONGEST_BLOCK_S = 2.0, 0.5
_OF_MEMORY = 0.25  # of what is free: for all graphs of a block


class _Mark:
    """What lives as long as a graph."""


class GraphWatch:
    """Keeps a call of the one model that validates with gradients, and times it later."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._rows: Counter[int] = Counter()  # by length: passes before a backward pass
        self._in_a_row = 0
        self._marks: list[weakref.ref[_Mark]] = []
        self._alive = 0
        self._models: set[int] = set()
        self._kept: KeptCall | None = None
        self._found: UnusedGraphs | None = None

    def backward(self) -> None:
        """A backward pass begins."""
        if self._in_a_row:
            self._rows[self._in_a_row] += 1
        self._in_a_row = 0
        self._marks.clear()

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or what marks its graph while gradients are recorded in a validation."""
        if self._event_log.tracing.possible or not torch.is_grad_enabled():
            return inner
        self._in_a_row += 1
        if not self._validates():
            return inner
        self._models.add(id(module))

        def call(*args: Any, **kwargs: Any) -> Any:
            fresh = None
            with contextlib.suppress(Exception):  # a probe ends no script
                if self._kept is None and KeptCall.possible(module, args, kwargs):
                    fresh = self._kept = KeptCall(module, args, kwargs)
            result = inner(*args, **kwargs) if fresh is None else fresh.made(inner, args, kwargs)
            with contextlib.suppress(Exception):
                self._mark(result)
            return result

        return call

    def _validates(self) -> bool:
        if self._in_a_row <= _LEAST_ROW or self._rows.total() < _STEPS:
            return False
        (usual, _), *_ = self._rows.most_common(1)
        return self._in_a_row > 2 * usual

    def _mark(self, result: Any) -> None:
        graphs = (leaf.grad_fn for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        graph: Any = next((each for each in graphs if each is not None), None)
        if graph is None or len(self._marks) >= _MOST_KEPT:
            return
        mark = graph.metadata[_MARK] = _Mark()
        self._marks.append(weakref.ref(mark))
        self._alive = max(self._alive, sum(each() is not None for each in self._marks))

    def measure(self) -> None:
        """Time the passes that were kept, once the script's steps are over."""
        if self._kept is not None and self._kept.is_short and len(self._models) == 1:
            with contextlib.suppress(Exception), random_states_kept():  # a model need not bear to be copied
                self._found = _compared(self._kept, self._alive if self._alive > _LEAST_ROW else 0)
        self._kept = None

    def facts(self) -> UnusedGraphs | None:
        """Return what was measured; None where no validation has graphs, or its passes cannot be made again."""
        return self._found


def _compared(kept: KeptCall, piled: int) -> UnusedGraphs | None:
    """Return what a pass takes with its graph, `piled` of which are kept, and without: medians of blocks in turn."""
    model, passes = kept.copied(), piled or _ALONE
    saved = _Saved()
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
        _timed(model, kept, passes=1, graphs=True, piled=False)
    if saved.num_bytes * passes > _OF_MEMORY * _free_bytes(model):
        return None
    if _timed(model, kept, passes=1, graphs=True, piled=False) * passes > _LONGEST_BLOCK_S:
        return None
    taken: tuple[list[float], list[float]] = ([], [])
    begin = perf_counter()
    while len(taken[1]) <= _PAIRS and perf_counter() - begin < _LONGEST_S:
        for graphs, times in zip((True, False), taken, strict=True):
            times.append(_timed(model, kept, passes=passes, graphs=graphs, piled=piled > 0))
    n = len(taken[1]) - 1
    if n < 1:
        return None
    with_s, without_s = (median(times[1:]) for times in taken)
    return UnusedGraphs(model=type(kept.module).__name__, n=n, piled=piled, with_s=with_s, without_s=without_s)


class _Saved:
    """Counts the bytes that a graph keeps."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.num_bytes += tensor.numel() * tensor.element_size()
        return tensor


def _free_bytes(model: Any) -> int:
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    return int(torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available)


def _timed(model: Any, kept: KeptCall, *, passes: int, graphs: bool, piled: bool) -> float:
    """Return the seconds of one pass, the mean of a block, letting go included."""
    given, named = kept.given()
    results: list[Any] = []
    wait()
    begin = perf_counter()
    with torch.set_grad_enabled(graphs):
        for _ in range(passes):
            result = model.forward(*given, **named)
            if piled:
                results.append(result)
            del result
    results.clear()
    wait()
    return (perf_counter() - begin) / passes


PROBE = Probe(
    name="graph-recording",
    make=lambda deep: GraphWatch(deep.event_log),
    around_always=GraphWatch.around,
    backward=lambda watch, tensor: watch.backward(),
    measure=lambda watch, causes: watch.measure(),
    trials={"unused_graphs": GraphWatch.facts},
    after=("repeated-forward", "precision"),
)
