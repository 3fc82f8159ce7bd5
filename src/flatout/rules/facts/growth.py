"""Tell whether a kind of time grows from step to step: over the run, or within each epoch and back to the start."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from flatout.analysis.statistics import median, quantile
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Step

__all__ = ["FACTOR", "Growth", "factor_of", "growth"]

MIN_STEPS = 24  # 8 values in each third
FACTOR = 1.5  # the last third at least this much above the first
WORST_EPOCHS = 0.6  # share of the epochs that must show growth
MIN_STRETCHES, GRADUAL = 3, 0.1  # stretches between falls without known epochs; least rise per quarter, of the whole
REGULAR, MOSTLY_REGULAR = 0.1, 0.8  # tolerated deviation from the usual length, and the share of stretches within


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a kind of time grew."""

    first_ms: float  # median of the first third
    last_ms: float  # median of the last third
    extra_ms: float  # mean per step above the initial level
    n: int  # steps looked at
    starts: tuple[int, ...] = (0,)  # the steps at which the growth starts over

    @property
    def factor(self) -> float:
        """Return the ratio of the last third to the first, at most 1000."""
        return min(1000.0, self.last_ms / self.first_ms) if self.first_ms > 0 else 1000.0

    @property
    def every_epoch(self) -> bool:
        """Return whether it starts over, with every epoch or as regularly."""
        return len(self.starts) > 1


def factor_of(steps: Sequence[Step], phases: Collection[Phase], *, starts: Sequence[int] = (0,)) -> float:
    """Return the ratio of last to first third of `phases` together, from each start; 1 if the first third is empty."""
    columns = [STEP_PHASES.index(phase) for phase in phases]
    together = [sum(step.phases_ns[column] for column in columns) for step in steps]
    factors = [
        median(values[-(len(values) // 3) :]) / first
        for values in _stretches(together, starts)
        if len(values) >= MIN_STEPS and (first := median(values[: len(values) // 3])) > 0
    ]
    return median(factors) if factors else 1.0


def growth(steps: Sequence[Step], phase: Phase) -> Growth | None:
    """Return how `phase` grows over `steps`, or None when it does not.

    Thirds are compared by their medians, and their middle halves must not overlap, so that neither stalls nor noise
    look like a trend. Where epochs are not known, as without a loader, they are inferred from a cost that falls back at
    regular intervals.
    """
    column = STEP_PHASES.index(phase)
    values = [step.phases_ns[column] / 1e6 for step in steps]
    whole = _rise(values)
    if whole is not None:
        return whole
    starts = _epochs(steps)
    known = len(starts) > 1
    starts = starts if known else _falls(values)
    long_enough = [stretch for stretch in _stretches(values, starts) if len(stretch) >= MIN_STEPS]
    rises = [rise for stretch in long_enough if (rise := _rise(stretch)) and (known or _is_gradual(stretch))]
    if len(long_enough) < 2 or len(rises) < WORST_EPOCHS * len(long_enough):
        return None
    return Growth(
        first_ms=median([rise.first_ms for rise in rises]),
        last_ms=median([rise.last_ms for rise in rises]),
        extra_ms=median([rise.extra_ms for rise in rises]),
        n=sum(rise.n for rise in rises),
        starts=starts,
    )


def _epochs(steps: Sequence[Step]) -> tuple[int, ...]:
    return tuple(at for at, step in enumerate(steps) if not at or step.epoch != steps[at - 1].epoch)


def _falls(values: Sequence[float]) -> tuple[int, ...]:
    """Return where the values fall from their highest to their lowest quarter, if that happens at regular intervals."""
    if len(values) < MIN_STEPS:
        return (0,)
    low, high = quantile(values, 0.25), quantile(values, 0.75)
    falls = [at for at in range(1, len(values)) if values[at] <= low < high <= values[at - 1]]
    lengths = [after - before for before, after in pairwise(falls)]
    usual = median(lengths) if lengths else 0
    regular = sum(abs(length - usual) <= REGULAR * usual for length in lengths)
    often = len(lengths) >= MIN_STRETCHES and regular >= MOSTLY_REGULAR * len(lengths)
    return (0, *falls) if often and usual >= MIN_STEPS else (0,)


def _is_gradual(values: Sequence[float]) -> bool:
    """Return whether each quarter lies above the one before: alternating between two levels is no growth."""
    quarter = len(values) // 4
    levels = [median(values[at * quarter : (at + 1) * quarter]) for at in range(4)]
    return all(after - before >= GRADUAL * (levels[-1] - levels[0]) > 0 for before, after in pairwise(levels))


def _stretches(values: Sequence[float], starts: Sequence[int]) -> list[Sequence[float]]:
    return [values[begin:end] for begin, end in zip(starts, [*starts[1:], len(values)], strict=True)]


def _rise(values: Sequence[float]) -> Growth | None:
    if len(values) < MIN_STEPS:
        return None
    third = len(values) // 3
    first, middle, last = values[:third], values[third:-third], values[-third:]
    start, end = median(first), median(last)
    if end < FACTOR * start or end <= 0 or not start <= median(middle) <= end:
        return None
    if quantile(first, 0.75) >= quantile(last, 0.25):
        return None
    # on a straight line: the middles of the thirds lie two thirds apart, the first one a sixth from the start
    began = max(quantile(first, 0.1), start - (end - start) / 4)
    extra = sum(values) / len(values) - began
    return Growth(start, end, max(0.0, extra), len(values))
