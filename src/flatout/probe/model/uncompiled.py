"""What compiled code would give in place of a function that was compiled so often that it is left uncompiled.

When the deep run has ended, passes of two copies of the model are timed in turn: one as it is written, one compiled
once, the numbers that modules keep in Python put back before each call, so that nothing has to be compiled again.
"""

import contextlib
from collections.abc import Callable, Iterable
from statistics import median
from time import perf_counter
from typing import Any

from torch.compiler import reset

from flatout.probe.core.probe import Probe
from flatout.probe.loader.repeated_samples import random_states_kept
from flatout.probe.model.compilations import optimized_module
from flatout.probe.model.model_copy import CallKeeper, KeptCall, timed_pass
from flatout.schema.run import CompiledFunction, CompiledTrial, Frame

__all__ = ["PROBE", "UncompiledWatch"]

_AT_CALL = 12  # more than torch's limit of 8
_PAIRS = 7
_LONGEST_S, _LONGEST_COMPILING_S = 1.5, 20.0


class UncompiledWatch:
    """Keeps one call of a compiled module, and times it later."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._keeper = CallKeeper(_AT_CALL)
        self._compiles: Callable[[Any], Any] | None = None  # as the script does, its backend and mode
        self._found: CompiledTrial | None = None

    def around(self, module: Any, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return `inner`, or for one call of a compiled module what keeps what it was given."""
        if not isinstance(module, optimized_module()):
            return inner

        def wanted() -> Any:
            self._compiles = module.dynamo_ctx
            return module._orig_mod

        return self._keeper.around(module, inner, wanted)

    def measure(self, functions: Iterable[CompiledFunction]) -> None:
        """Time the passes of a model that is one of `functions` and left uncompiled; what was compiled is lost then."""
        functions, kept = list(functions), self._keeper.take()
        once_s = sum(each.seconds / max(1, each.compilations) for each in functions)
        if kept is None or self._compiles is None or once_s >= _LONGEST_COMPILING_S:
            return
        place = next((each.place for each in functions if each.is_given_up and _begins(kept.module, each.place)), None)
        if place is not None:
            with contextlib.suppress(Exception), random_states_kept():  # a model need not bear to be copied
                self._found = _compared(kept, self._compiles, place)

    def facts(self) -> CompiledTrial | None:
        """Return what was measured; None where nothing is left uncompiled, or its model cannot be copied."""
        return self._found


def _begins(module: Any, place: Frame) -> bool:
    """Return whether the forward pass of `module`, or what it is wrapped in, begins at `place`."""
    function: Any = type(module).forward
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is not None and (code.co_filename, code.co_firstlineno) == (place.file, place.line):
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def _compared(kept: KeptCall, compiles: Callable[[Any], Any], place: Frame) -> CompiledTrial | None:
    """Return what a pass takes as it is written and compiled: medians of passes in turn."""
    reset()  # what was given up is not tried again otherwise
    written, steady = kept.copied(), kept.copied()
    forwards = (written.forward, compiles(steady.forward))
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
    return CompiledTrial(model=name, place=place, n=n, written_s=written_s, compiled_s=compiled_s)


def _plain_values(model: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Return the numbers and texts that each module of `model` keeps."""
    return [
        (inner, {name: value for name, value in vars(inner).items() if isinstance(value, (bool, int, float, str))})
        for inner in model.modules()
    ]


PROBE = Probe(
    name="uncompiled",
    make=lambda deep: UncompiledWatch(),
    around=UncompiledWatch.around,
    measure=lambda watch, causes: watch.measure(causes.compiled),
    trials={"compiled_trial": UncompiledWatch.facts},
    after=("precision", "graph-recording"),
)
