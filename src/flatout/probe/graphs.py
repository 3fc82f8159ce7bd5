"""What it costs to record graphs that no backward pass uses: passes of a copy of the model with gradients and without.

Passes that follow each other without a backward pass between them are validation. Whether the script lets go of their
graphs matters more than their making: graphs that pile up live in memory that is fresh each time. So a mark is hung
on each graph, and as many as were seen alive together are kept when the passes are made again, after the last step.
"""

import contextlib
import weakref
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from flatout.probe.copied import KeptCall, wait
from flatout.probe.datasets import random_states_kept
from flatout.probe.tape import Tape
from flatout.schema.run import UnusedGraphs

__all__ = ["GraphWatch"]

_IN_A_ROW = 8  # passes without a backward pass: more than any step makes
_MOST_KEPT = 64
_ALONE = 4  # passes of a block where graphs are let go
_PAIRS = 5
_LONGEST_S = 2.0


class _Mark:
    """What lives as long as a graph."""


class GraphWatch:
    """Keeps one of the calls of a model that no backward pass follows, and times it later."""

    def __init__(self, tape: Tape) -> None:
        """Watch nothing yet."""
        self._tape = tape
        self._in_a_row = 0
        self._marks: list[weakref.ref[_Mark]] = []
        self._alive = 0
        self._kept: KeptCall | None = None
        self._tried = False
        self._found: UnusedGraphs | None = None

    def backward(self) -> None:
        """A backward pass begins."""
        self._in_a_row = 0
        self._marks.clear()

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or what marks its graph while gradients are recorded."""
        if self._tape.tracing.possible or not torch.is_grad_enabled():
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            self._in_a_row += 1
            if self._in_a_row == _IN_A_ROW and not self._tried:
                self._tried = True
                with contextlib.suppress(Exception):  # a probe ends no script
                    if KeptCall.possible(module, args, kwargs):
                        self._kept = KeptCall(module, args, kwargs)
            result = inner(*args, **kwargs)
            with contextlib.suppress(Exception):
                self._mark(result)
            return result

        return call

    def _mark(self, result: Any) -> None:
        graphs = (leaf.grad_fn for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        graph: Any = next((each for each in graphs if each is not None), None)
        if graph is None or len(self._marks) >= _MOST_KEPT:
            return
        mark = graph.metadata["flatout"] = _Mark()
        self._marks.append(weakref.ref(mark))
        self._alive = max(self._alive, sum(each() is not None for each in self._marks))

    def measure(self) -> None:
        """Time the passes that were kept, once the script's steps are over."""
        if self._kept is not None:
            with contextlib.suppress(Exception), random_states_kept():  # a model need not bear to be copied
                self._found = _compared(self._kept, self._alive if self._alive > _IN_A_ROW else 0)
        self._kept = None

    def facts(self) -> UnusedGraphs | None:
        """Return what was measured; None where each pass is followed by a backward pass, or none can be made again."""
        return self._found


def _compared(kept: KeptCall, piled: int) -> UnusedGraphs | None:
    """Return what a pass takes with its graph, `piled` of which are kept, and without: medians of blocks in turn."""
    model = kept.copied()
    pass_s = _timed(model, kept, passes=1, graphs=True, piled=False)
    if pass_s > _LONGEST_S:
        return None
    passes = max(1, min(piled or _ALONE, round(_LONGEST_S / 2 / pass_s)))
    taken: tuple[list[float], list[float]] = ([], [])
    begin = perf_counter()
    while len(taken[1]) <= _PAIRS and (not taken[1] or perf_counter() - begin < _LONGEST_S):
        for graphs, times in zip((True, False), taken, strict=True):
            times.append(_timed(model, kept, passes=passes, graphs=graphs, piled=piled > 0))
    with_s, without_s = (median(times[1:] or times) for times in taken)
    return UnusedGraphs(
        model=type(kept.module).__name__,
        n=max(1, len(taken[1]) - 1),
        piled=passes if piled else 0,
        with_s=with_s,
        without_s=without_s,
    )


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
