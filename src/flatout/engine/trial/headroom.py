"""Headroom: how fast the steps are when their input is held at a place, measured in turns with the script as it is."""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from flatout.analysis.judge import compare
from flatout.engine.process.target import Target
from flatout.engine.trial.block_results import Measured
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.timing import Bench
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
from flatout.schema.run import Environment, Run
from flatout.schema.trial import Selection

__all__ = ["measure_headroom"]

_WORTH = 0.02  # share of the step below which nothing there is worth a run of its own
_WORTH_TAKING_APART = 0.05  # the same of what is done to samples one after the other, and beside the training
_LOOKS, _FEWEST_PAIRS = (8, 16), 4
_BLOCK_S, _BLOCK_STEPS = 0.1, 4
_ALONE_S, _ALONE_STEPS = 1.0, 24  # of the loader without training, so many batches at least if there is time
_SWITCHES = 1.5  # of a pair: one in it, and one before every second, as the lot falls
_STALL_S = 5.0
_BATCHES_OF_A_WORKER = 10  # each holds samples anew, which takes as long as a few batches

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
    the start. Where that is too short for all of them, the first are measured; none where it is too short for one, as
    with many slow workers that are hardly waited for: what they have ready lasts too long.
    """
    loaders = [loader for loader in run.loaders if loader.is_training and (loader.num_batches or loader.epochs_started)]
    step_s = breakdown.median_ms / 1e3
    ready = max((loader.num_workers * max(2, loader.prefetch_factor) for loader in loaders), default=0)
    skip, drain = 2 + ready, _drained_after(ready, breakdown)
    block_s = max(_BLOCK_S, _BLOCK_STEPS * step_s)
    alone_s = min(max_s / 4, max(_ALONE_S, _ALONE_STEPS * step_s))
    left_out = _SWITCHES * skip + _SWITCHES / 2 * drain  # of each pair
    arm_s = skip * step_s + _FEWEST_PAIRS * (2 * block_s + left_out * step_s)
    fitting = int((max_s - alone_s) / arm_s)
    places = _places(loaders, run.environment, breakdown)[: max(0, fitting)]
    if not places or run.header.world_size > 1:
        return ()
    pace = Pace(step_s=step_s, first_step=run.first_step, skip=skip, block_s=block_s)
    bench = Bench(target, folder / "headroom", watch, pace, stall_s=_STALL_S)
    measured = [Measured() for _ in (*places, LOADER_ALONE)]
    arms = [(selection,) for _, selection in places]
    bench.ceilings(arms, measured, looks=_LOOKS, max_s=max_s - alone_s, alone_s=alone_s, within_s=within_s, drain=drain)
    names = [*(name for name, _ in places), LOADER_ALONE]
    return tuple(
        _ceiling(name, found)
        for name, found in zip(names, measured, strict=True)
        if len(found.pairs) >= _FEWEST_PAIRS and found.decision != "not applied"
    )


def _drained_after(ready: int, breakdown: Breakdown) -> int:
    """Return after how many steps more the training waits for its workers again, when `ready` batches lie ready.

    A script that waits for the share w of its time makes 1 - w batches in a step that does not wait, and uses one: the
    stock lasts `ready` / w steps. These are faster than the script as it is, by so little where w is small that they
    are not waited for.
    """
    waits = breakdown.share(Phase.INPUT)
    return math.ceil(ready / waits) - ready if waits >= _WORTH_TAKING_APART else 0


def _places(loaders: Sequence[LoaderFacts], environment: Environment, breakdown: Breakdown) -> list[_Place]:
    """Return where to hold the input, the one that tells most first.

    Whether a data set has a transform that can be left out shows only when that is tried.
    """
    waits = breakdown.share(Phase.INPUT)
    found = []
    if loaders and waits >= _WORTH:
        found.append((HELD_INPUT, Selection("held-batch", {"place": "host"})))
    if loaders and breakdown.share(Phase.TRANSFER) >= _WORTH:
        found.append((HELD_TRANSFER, Selection("held-batch", {"place": "device"})))
    pinned = all(each.pin_memory for each in loaders)
    if breakdown.share(Phase.TRANSFER) >= _WORTH and environment.device_kind == "cuda" and not pinned:
        found.append((HELD_PINNED, Selection("held-batch", {"place": "pinned"})))
    makes = [each for each in loaders if not each.iterable_style and _can_be_switched(each, environment)]
    if makes and waits >= _WORTH_TAKING_APART:
        stages = [(HELD_SAMPLES, "sample"), (HELD_RAW, "raw")]
        stages += [(HELD_FIXED, "fixed")] if any(each.stages for each in makes) else []
        workers = all(each.num_workers for each in makes)
        found += [(name, Selection("held-samples", {"place": place, "workers": workers})) for name, place in stages]
    return found


def _can_be_switched(loader: LoaderFacts, environment: Environment) -> bool:
    """Return whether the processes that make samples follow a switch, and last long enough to hold some."""
    if not loader.num_workers:
        return True
    if (loader.start_method or environment.start_method) != "fork":
        return False
    return loader.persistent_workers or loader.num_batches >= _BATCHES_OF_A_WORKER * loader.num_workers


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
