"""Two versions of a program that trained side by side in turns: how much longer a step of the second takes.

Blocks that take turns see the same machine, so what it does falls on both. What one start of both has to itself, the
placement of its memory and threads, is in all of its blocks; so a start counts once, with the trimmed mean of its pairs
(`analysis.judge`), and the scatter from start to start makes the interval: Student's t over starts.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from flatout.analysis.judge import compare, t_quantile, t_tail
from flatout.analysis.statistics import block_mean
from flatout.schema.difference import Change, Difference
from flatout.schema.phase import STEP_PHASES
from flatout.schema.trial import Pair

__all__ = ["FEWEST_STARTS", "Start", "of_starts"]

FEWEST_STARTS = 3
"""With fewer, their scatter is not known."""

_LEAST_NOISE = 0.002
"""Starts are never taken to scatter by less: a few alike are no proof of a quiet machine."""


_CAUTION = 4
"""Times what Student's t says of chance. With 1, 4 of 200 comparisons of equal programs were called slower by more than
1 % at an error probability of 1 % (`benchmarks/gate.py`, drawn from 28 starts, 2026-11-23)."""


@dataclass(frozen=True, slots=True)
class Start:
    """What one start of both gave: pairs of neighbouring blocks, and for each block its side and its phases in ms."""

    pairs: tuple[Pair, ...]
    phases: tuple[tuple[int, tuple[float, ...]], ...] = ()


def of_starts(described: Difference, starts: Sequence[Start], *, looks: int = 1) -> Difference:
    """Return `described`, a comparison of one recording of each side, with the step and its phases as `starts` say.

    `looks`: how often the starts are looked at before it is known how many there will be; each is paid for in `chance`
    alone (Bonferroni), which is an upper bound. Where steps have other numbers of samples on both sides, `described`
    tells, and times of the second are of as many samples as a step of the first.

    Raises:
        ValueError: there are fewer than three starts, or one of them has no pair.
    """
    if len(starts) < FEWEST_STARTS or not all(start.pairs for start in starts):
        raise ValueError(f"{len(starts)} starts say nothing about their scatter: {FEWEST_STARTS} with pairs are needed")
    scale = (described.samples_before or 1.0) / (described.samples_after or 1.0)
    logs = [math.log(scale / compare(start.pairs, alpha=0.01, looks=()).speedup) for start in starts]
    center, freedom = statistics.fmean(logs), len(logs) - 1
    noise = max(statistics.stdev(logs), _LEAST_NOISE)
    error = noise / math.sqrt(len(logs))
    width = t_quantile(0.975, freedom) * error
    before_ms = block_mean([pair.baseline_ms for start in starts for pair in start.pairs])
    return dataclasses.replace(
        described,
        num_starts=len(starts),
        num_pairs=sum(len(start.pairs) for start in starts),
        before_ms=before_ms,
        after_ms=before_ms * math.exp(center),
        ratio=math.exp(center),
        low=math.exp(center - width),
        high=math.exp(center + width),
        noise=noise,
        chance=min(1.0, _CAUTION * looks * t_tail(center / error, freedom)),
        phases=tuple(_phases(starts, scale)) or described.phases,
    )


def _phases(starts: Sequence[Start], scale: float) -> list[Change]:
    """Return every phase that occurs on either side; its interval is made of the starts' own changes."""
    sides = [[_means(start, side) for start in starts] for side in (0, 1)]
    if not all(means for side in sides for means in side):
        return []
    found = []
    for place, phase in enumerate(STEP_PHASES):
        before = [means[place] for means in sides[0]]
        after = [scale * means[place] for means in sides[1]]
        if not any(before) and not any(after):
            continue
        moved = [later - earlier for earlier, later in zip(before, after, strict=True)]
        middle = statistics.fmean(moved)
        width = t_quantile(0.975, len(moved) - 1) * statistics.stdev(moved) / math.sqrt(len(moved))
        found.append(
            Change(
                name=phase.value,
                before_ms=statistics.fmean(before),
                after_ms=statistics.fmean(after),
                low_ms=middle - width,
                high_ms=middle + width,
            )
        )
    return found


def _means(start: Start, side: int) -> list[float]:
    """Return the mean of each phase over the blocks of one side of a start, stalls drawn in."""
    blocks = [phases for whose, phases in start.phases if whose == side and len(phases) == len(STEP_PHASES)]
    return [block_mean(values) for values in zip(*blocks, strict=True)]
