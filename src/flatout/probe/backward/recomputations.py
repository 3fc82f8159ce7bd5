"""Forward passes that the backward pass makes again: activation checkpointing, by the line that asks for it."""

import sys
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import psutil
import torch
from torch.compiler import is_dynamo_compiling

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.user_places import user_stack
from flatout.schema.backward import Recomputed
from flatout.schema.run import Frame, Step

__all__ = ["PROBE", "Recomputations"]

_Site = tuple[Frame | None, bool, bool]  # a line, whether random states are kept, whether the pass is reentrant


class Recomputations:
    """Clocks what `torch.utils.checkpoint` computes again."""

    def __init__(self, event_log: EventLog) -> None:
        """Know of none yet."""
        self._tracing = event_log.tracing
        self._steps = 0
        self._inside = False
        self._taken: dict[_Site, list[int]] = defaultdict(list)  # nanoseconds of each

    def install(self, seams: Seams) -> None:
        """Watch who asks for it."""
        seams.wrap("torch.utils.checkpoint:checkpoint", self._watched)

    def _watched(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
            if self._tracing.possible and is_dynamo_compiling():
                return original(function, *args, **kwargs)
            hits.count += 1
            stack = user_stack(sys._getframe(1), 1)
            site = Frame(*stack[0]) if stack else None, kwargs.get("preserve_rng_state", True), _reentrant(kwargs)
            return original(self._clocked(function, site), *args, **kwargs)

        return checkpoint

    def _clocked(self, function: Callable[..., Any], site: _Site) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._inside or torch._C._current_graph_task_id() == -1:  # the forward pass itself
                return function(*args, **kwargs)
            self._inside, begin = True, perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:  # it may be left early, by an exception of torch's own
                self._inside = False
                self._taken[site].append(perf_counter_ns() - begin)

        return call

    def start(self) -> None:
        """Leave out what the first step made."""
        self._taken.clear()

    def step(self, step: Step, number: int) -> None:
        """A step is over."""
        self._steps += 1

    def facts(self) -> tuple[Recomputed, ...]:
        """Return what was computed again, by line, that which took most first."""
        memory = psutil.virtual_memory()
        found = [
            Recomputed(
                place=place,
                calls=len(taken),
                steps=self._steps,
                seconds=sum(taken) / 1e9,
                kept_rng=bool(kept_rng),
                reentrant=reentrant,
                free_bytes=memory.available,
                total_bytes=memory.total,
            )
            for (place, kept_rng, reentrant), taken in self._taken.items()
            if self._steps
        ]
        return tuple(sorted(found, key=lambda each: -each.seconds))


def _reentrant(kwargs: dict[str, Any]) -> bool:
    asked = kwargs.get("use_reentrant")
    return True if asked is None else bool(asked)


PROBE = Probe(
    name="recomputations",
    make=lambda deep: Recomputations(deep.event_log),
    install=Recomputations.install,
    start=Recomputations.start,
    step=Recomputations.step,
    causes={"recomputed": Recomputations.facts},
)
