"""What a model of images takes channels-last on the CPU: passes of two copies of it, when the deep run has ended."""

import contextlib
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.utils._pytree import tree_map

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.core.user_places import caller
from flatout.probe.loader.repeated_samples import random_states_kept
from flatout.probe.model.forward_pass import plain_on_cpu
from flatout.probe.model.model_copy import CallKeeper, KeptCall, timed_pass
from flatout.schema.run import Frame, LayoutTrial

__all__ = ["PROBE", "LayoutWatch"]

_AT_CALL = 5
_PAIRS = 7
_LEAST = 3  # passes, the first of which is left out
_LONGEST_S, _TOO_LONG_S = 1.5, 5.0
_CONVOLUTIONS = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)


class LayoutWatch:
    """Keeps one call of a model with convolutions that are channels-first, and times it later."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._keeper = CallKeeper(_AT_CALL)
        self._place: Frame | None = None
        self._found: LayoutTrial | None = None

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or for one call of such a model what keeps what it was given."""

        def wanted() -> Any:
            if not plain_on_cpu(module, self._event_log) or not _is_first(module):
                return None
            self._place = caller(4)
            return module

        return self._keeper.around(module, inner, wanted)

    def measure(self) -> None:
        """Time the model that was called, once the script's steps are over."""
        kept = self._keeper.take()
        if kept is not None:
            with contextlib.suppress(Exception), random_states_kept():  # a model need not bear to be copied
                self._found = _compared(kept, self._place)

    def facts(self) -> LayoutTrial | None:
        """Return what was measured; None where no such model was called, or none could be copied."""
        return self._found


def _is_first(module: Any) -> bool:
    """Return whether a model has convolutions, none of which is channels-last."""
    weights = [one.weight for one in module.modules() if isinstance(one, _CONVOLUTIONS)]
    return bool(weights) and all(one.is_contiguous() for one in weights) and any(one.shape[1] > 1 for one in weights)


def _last(value: Any) -> Any:
    images = isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_floating_point()
    return value.contiguous(memory_format=torch.channels_last) if images else value


def _compared(kept: KeptCall, place: Frame | None) -> LayoutTrial | None:
    """Return what a pass of each layout takes: medians, the first of each left out where there are more."""
    first, last = kept.copied(), kept.copied().to(memory_format=torch.channels_last)
    taken: tuple[list[float], list[float]] = ([], [])
    begin = perf_counter()
    while len(taken[1]) <= _PAIRS and (len(taken[1]) < _LEAST or perf_counter() - begin < _LONGEST_S):
        if len(taken[1]) == _LEAST - 1 and perf_counter() - begin > _TOO_LONG_S:
            break
        for model, convert, times in zip((first, last), (lambda value: value, _last), taken, strict=True):
            times.append(timed_pass(partial(_converted, model, convert), model, kept.given()))
    first_s, last_s = (median(times[1:]) for times in taken)
    return LayoutTrial(
        model=type(kept.module).__name__, place=place, n=len(taken[1]) - 1, first_s=first_s, last_s=last_s
    )


def _converted(model: Any, convert: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:
    """Call a model on converted inputs: converting is part of what a pass takes."""
    args, kwargs = tree_map(convert, (args, kwargs))
    return model.forward(*args, **kwargs)


PROBE = Probe(
    name="image-layout",
    make=lambda deep: LayoutWatch(deep.event_log),
    around=LayoutWatch.around,
    measure=lambda watch, causes: watch.measure(),
    trials={"layout_trial": LayoutWatch.facts},
    after=("uncompiled", "precision", "graph-recording"),
)
