"""Headroom: how fast the steps are when their input is held at a place, measured in turns with the script as it is."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from flatout.analysis.judge import compare
from flatout.engine.blocks import Measured
from flatout.engine.pace import Pace
from flatout.engine.target import Target
from flatout.engine.timing import Bench
from flatout.schema.facts import (
    HELD_FIXED,
    HELD_INPUT,
    HELD_PINNED,
    HELD_RAW,
    HELD_SAMPLES,
    HELD_TRANSFER,
    LOADER_ALONE,
    Ceiling,
    LoaderFacts,
)
from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Selection

__all__ = ["measure_headroom"]

_WORTH = 0.02  # share of the step below which nothing there is worth a run of its own
_WORTH_TAKING_APART = 0.05  # the same of what is done to samples one after the other
_LOOKS, _FEWEST_PAIRS = (8, 16), 4
_BLOCK_S, _BLOCK_STEPS = 0.1, 4
_ALONE_S, _ALONE_STEPS = 1.0, 24  # of the loader without training, so many batches at least if there is time
_STALL_S = 5.0

_Place = tuple[str, Selection]


def measure_headroom(
    target: Target,
    folder: Path,
    run: Run,
    breakdown: Breakdown,
    *,
    max_s: float,
    within_s: float,
    watch: Callable[[int], None],
) -> tuple[Ceiling, ...]:
    """Return the ceilings of what `run` waits for; none where it comes from no loader, or is too short to tell.

    All together they take one more start of the script, and at most `max_s` seconds of steps; `within_s` seconds with
    the start. Where that is too short for all of them, the first are measured.
    """
    loaders = [loader for loader in run.loaders if loader.is_training and loader.num_batches]
    step_s = breakdown.median_ms / 1e3
    skip = 2 + max((loader.num_workers * max(2, loader.prefetch_factor) for loader in loaders), default=0)
    block_s = max(_BLOCK_S, _BLOCK_STEPS * step_s)
    alone_s = min(max_s / 4, max(_ALONE_S, _ALONE_STEPS * step_s))
    fitting = int((max_s - alone_s) / (2 * _FEWEST_PAIRS * (block_s + skip * step_s)))
    places = _places(loaders, run.environment.device_kind, breakdown)[: max(0, fitting)]
    if not places or run.header.world_size > 1:
        return ()
    pace = Pace(step_s=step_s, skip=skip, block_s=block_s)
    bench = Bench(target, folder / "headroom", watch, pace, stall_s=_STALL_S)
    measured = [Measured() for _ in (*places, LOADER_ALONE)]
    arms = [(selection,) for _, selection in places]
    bench.ceilings(arms, measured, looks=_LOOKS, max_s=max_s - alone_s, alone_s=alone_s, within_s=within_s)
    names = [*(name for name, _ in places), LOADER_ALONE]
    return tuple(
        _ceiling(name, found)
        for name, found in zip(names, measured, strict=True)
        if len(found.pairs) >= _FEWEST_PAIRS and found.decision != "not applied"
    )


def _places(loaders: Sequence[LoaderFacts], device_kind: str, breakdown: Breakdown) -> list[_Place]:
    """Return where to hold the input, the one that tells most first.

    Samples are held where the training process makes them itself. Whether a data set has a transform that can be left
    out shows only when that is tried.
    """
    waits = breakdown.share(Phase.INPUT)
    found = []
    if loaders and waits >= _WORTH:
        found.append((HELD_INPUT, Selection("held-batch", {"place": "host"})))
    if loaders and breakdown.share(Phase.TRANSFER) >= _WORTH:
        found.append((HELD_TRANSFER, Selection("held-batch", {"place": "device"})))
    makes = [each for each in loaders if not each.num_workers and not each.iterable_style]
    if makes and waits >= _WORTH_TAKING_APART:
        found.append((HELD_SAMPLES, Selection("held-samples", {"place": "sample"})))
        found.append((HELD_RAW, Selection("held-samples", {"place": "raw"})))
        if any(each.stages for each in makes):
            found.append((HELD_FIXED, Selection("held-samples", {"place": "fixed"})))
    pinned = all(each.pin_memory for each in loaders)
    if breakdown.share(Phase.TRANSFER) >= _WORTH and device_kind == "cuda" and not pinned:
        found.append((HELD_PINNED, Selection("held-batch", {"place": "pinned"})))
    return found


def _ceiling(name: str, measured: Measured) -> Ceiling:
    comparison = compare(measured.pairs, alpha=0.02, looks=_LOOKS)
    return Ceiling(
        ceiling=name,
        median_ms=statistics.median(pair.candidate_ms for pair in measured.pairs),
        speedup=comparison.speedup,
        low=comparison.low,
        high=comparison.high,
        num_pairs=len(measured.pairs),
    )
