"""Headroom: how fast the steps are when their input takes no time, measured in turns with the script as it is."""

import statistics
from collections.abc import Callable
from pathlib import Path

from flatout.analysis.judge import compare
from flatout.engine.blocks import Measured
from flatout.engine.pace import Pace
from flatout.engine.target import Target
from flatout.engine.timing import Bench
from flatout.schema.facts import HELD_INPUT, HELD_TRANSFER, Ceiling
from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.trial import Selection

__all__ = ["measure_headroom"]

_WORTH = 0.05  # share of the step below which nothing there is worth a run of its own
_LOOKS, _FEWEST_PAIRS = (8, 16), 4
_BLOCK_S = 0.15
_STALL_S = 5.0


def measure_headroom(
    target: Target, folder: Path, run: Run, breakdown: Breakdown, *, max_s: float, watch: Callable[[int], None]
) -> tuple[Ceiling, ...]:
    """Return the ceilings of what `run` waits for; none where it comes from no loader, or is too short to tell.

    Each takes one more start of the script; all together at most `max_s` seconds, not counting the starts.
    """
    loaders = [loader for loader in run.loaders if loader.is_training and loader.num_batches]
    wanted = []
    if loaders and breakdown.share(Phase.INPUT) >= _WORTH:
        wanted.append((HELD_INPUT, "host"))
    if loaders and breakdown.share(Phase.TRANSFER) >= _WORTH:
        wanted.append((HELD_TRANSFER, "device"))
    if not wanted:
        return ()
    step_s = breakdown.median_ms / 1e3
    skip = 2 + max(loader.num_workers * max(2, loader.prefetch_factor) for loader in loaders)
    block_s = max(_BLOCK_S, 4 * step_s)
    if 2 * _FEWEST_PAIRS * (block_s + skip * step_s) * len(wanted) > max_s:
        return ()
    found = []
    for name, place in wanted:
        measured = Measured()
        together = run.header.world_size > 1
        pace = Pace(step_s=step_s, skip=skip, block_s=block_s, together=together)
        bench = Bench(target, folder / "headroom", watch, pace, stall_s=_STALL_S)
        bench.arms(
            (),
            [(Selection("held-batch", {"place": place}),)],
            [measured],
            alpha=0.02,
            max_s=max_s / len(wanted),
            looks=_LOOKS,
        )
        if len(measured.pairs) >= _FEWEST_PAIRS:
            found.append(_ceiling(name, measured))
    return tuple(found)


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
