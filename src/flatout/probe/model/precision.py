"""What float64 costs a model: forward and backward of copies of it in both types, when the deep run has ended."""

import contextlib
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import Probe
from flatout.probe.loader.repeated_samples import random_states_kept
from flatout.probe.model.model_copy import CallKeeper, KeptCall, timed_pass
from flatout.schema.run import PrecisionTrial

__all__ = ["PROBE", "PrecisionWatch"]

_AT_CALL = 4  # by then what a model makes at its first pass is there
_PAIRS = 7
_LONGEST_S = 1.5


class PrecisionWatch:
    """Keeps one call of a model that computes in float64, and times it later."""

    def __init__(self, event_log: EventLog) -> None:
        """Watch nothing yet."""
        self._event_log = event_log
        self._keeper = CallKeeper(_AT_CALL)
        self._found: PrecisionTrial | None = None

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or for one call of a model of float64 what keeps what it was given."""
        may = not self._event_log.tracing.possible
        return self._keeper.around(module, inner, lambda: module if may and _is_wide(module) else None)

    def measure(self) -> None:
        """Time the model that was called, once the script's steps are over."""
        kept = self._keeper.take()
        if kept is not None:
            with contextlib.suppress(Exception), random_states_kept():  # a model need not bear to be copied
                self._found = _compared(kept)

    def facts(self) -> PrecisionTrial | None:
        """Return what was measured; None where no model computes in float64, or none could be copied."""
        return self._found


def _is_wide(module: Any) -> bool:
    """Return whether most of what a model holds is float64."""
    sizes = [(one.dtype, one.numel() * one.element_size()) for one in (*module.parameters(), *module.buffers())]
    wide = sum(size for dtype, size in sizes if dtype is torch.float64)
    return bool(2 * wide > sum(size for _, size in sizes))


def _compared(kept: KeptCall) -> PrecisionTrial | None:
    """Return what a pass of each type takes: medians, the first of each left out where there are more."""
    wide, narrow = kept.copied(), kept.copied().float()
    taken: tuple[list[float], list[float]] = ([], [])
    before, seen = torch.get_default_dtype(), _WideResults()
    try:
        torch.set_default_dtype(torch.float32)
        given = kept.given(torch.float32)
        with seen:
            timed_pass(narrow.forward, narrow, given)
        begin = perf_counter()
        while not seen.any and len(taken[1]) <= _PAIRS and (not taken[1] or perf_counter() - begin < _LONGEST_S):
            for model, dtype, times in zip((wide, narrow), (torch.float64, torch.float32), taken, strict=True):
                torch.set_default_dtype(before if dtype is torch.float64 else dtype)
                times.append(timed_pass(model.forward, model, kept.given(dtype)))
    finally:
        torch.set_default_dtype(before)
    if not taken[1]:
        return None
    double_s, single_s = (median(times[1:] or times) for times in taken)
    name, n = type(kept.module).__name__, max(1, len(taken[1]) - 1)
    return PrecisionTrial(model=name, n=n, float64_s=double_s, float32_s=single_s)


class _WideResults(TorchDispatchMode):
    """Notes whether anything still comes out in float64: constants of the model's own, or a conversion in it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation, and look at the type of what it gives."""
        result = func(*args, **(kwargs or {}))
        self.any = self.any or any(getattr(leaf, "dtype", None) is torch.float64 for leaf in tree_leaves(result))
        return result


PROBE = Probe(
    name="precision",
    make=lambda deep: PrecisionWatch(deep.event_log),
    around=PrecisionWatch.around,
    measure=lambda watch, causes: watch.measure(),
    trials={"precision": PrecisionWatch.facts},
    after=("slow-reductions",),
)
