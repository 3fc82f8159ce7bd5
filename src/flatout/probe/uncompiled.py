"""What compiled code would give in place of a function that was compiled so often that it is left uncompiled.

When the deep run has ended, passes of two copies of the model are timed in turn: one as it is written, one compiled
once, the numbers that modules keep in Python put back before each call, so that nothing has to be compiled again.
"""

import contextlib
from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter
from typing import Any

from torch import compile as _compile  # before any probe has wrapped it
from torch.compiler import reset

from flatout.probe.compiling import optimized_module
from flatout.probe.copied import CallKeeper, KeptCall, timed_pass
from flatout.probe.datasets import random_states_kept
from flatout.schema.run import CompiledFunction, CompiledTrial

__all__ = ["UncompiledWatch"]

_AT_CALL = 12  # more than torch's limit of 8
_PAIRS = 7
_LONGEST_S, _LONGEST_COMPILING_S = 1.5, 20.0


class UncompiledWatch:
    """Keeps one call of a compiled module, and times it later."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._keeper = CallKeeper(_AT_CALL)
        self._found: CompiledTrial | None = None

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or for one call of a compiled module what keeps what it was given."""
        written = module._orig_mod if isinstance(module, optimized_module()) else None
        return inner if written is None else self._keeper.around(module, inner, lambda: written)

    def measure(self, functions: Iterable[CompiledFunction]) -> None:
        """Time the passes where one of `functions` is left uncompiled; what the script has compiled is lost then."""
        left = [each for each in functions if each.is_given_up]
        longest_s = max((each.seconds / each.compilations for each in left), default=0.0)
        kept = self._keeper.take()
        if left and kept is not None and longest_s < _LONGEST_COMPILING_S:
            with contextlib.suppress(Exception), random_states_kept():  # a model need not bear to be copied
                self._found = _compared(kept)

    def facts(self) -> CompiledTrial | None:
        """Return what was measured; None where nothing is left uncompiled, or its model cannot be copied."""
        return self._found


def _compared(kept: KeptCall) -> CompiledTrial | None:
    """Return what a pass takes as it is written and compiled: medians of passes in turn."""
    reset()  # what was given up is not tried again otherwise
    written, steady = kept.copied(), kept.copied()
    forwards = (written.forward, _compile(steady.forward))
    values = [_plain_values(model) for model in (written, steady)]
    taken: tuple[list[float], list[float]] = ([], [])
    begin = None
    while len(taken[1]) <= _PAIRS and (begin is None or perf_counter() - begin < _LONGEST_S):
        for model, forward, put_back, times in zip((written, steady), forwards, values, taken, strict=True):
            for inner, plain in put_back:
                vars(inner).update(plain)
            times.append(timed_pass(forward, model, kept.given()))
        begin = begin or perf_counter()  # the first pass compiles
    if len(taken[1]) < 2:
        return None
    written_s, compiled_s = (median(times[1:]) for times in taken)
    name, n = type(kept.module).__name__, len(taken[1]) - 1
    return CompiledTrial(model=name, n=n, written_s=written_s, compiled_s=compiled_s)


def _plain_values(model: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return the numbers and texts that each module of `model` keeps."""
    return [
        (inner, {name: value for name, value in vars(inner).items() if isinstance(value, (bool, int, float, str))})
        for inner in model.modules()
    ]
