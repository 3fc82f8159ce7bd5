"""Tell whether a kind of time grows from step to step: over the run, or within each epoch and back to the start."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

from flatout.analysis.statistics import median, quantile
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Step

__all__ = ["FACTOR", "Growth", "factor_of", "growth"]

MIN_STEPS = 24  # 8 values in each third
FACTOR = 1.5  # the last third at least this much above the first
WORST_EPOCHS = 0.6  # share of the epochs that must show it


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a kind of time grew."""

    first_ms: float  # median of the first third
    last_ms: float  # median of the last third
    extra_ms: float  # mean a step above the first third
    n: int  # steps looked at
    every_epoch: bool  # it starts again with every epoch

    @property
    def factor(self) -> float:
        """Return the last third over the first, at most 1000."""
        return min(1000.0, self.last_ms / self.first_ms) if self.first_ms > 0 else 1000.0


def factor_of(steps: Sequence[Step], phases: Collection[Phase], *, every_epoch: bool) -> float:
    """Return the last third over the first of `phases` together; 1 where there was nothing in the first."""
    columns = [STEP_PHASES.index(phase) for phase in phases]
    together = [
        [sum(step.phases_ns[column] for column in columns) for step in stretch]
        for stretch in (_epochs(steps) if every_epoch else [steps])
    ]
    factors = [
        median(values[-(len(values) // 3) :]) / first
        for values in together
        if len(values) >= MIN_STEPS and (first := median(values[: len(values) // 3])) > 0
    ]
    return median(factors) if factors else 1.0


def growth(steps: Sequence[Step], phase: Phase) -> Growth | None:
    """Return how `phase` grows over `steps`, or None when it does not.

    Thirds are compared by their medians, and must not overlap in their middle halves, so that neither stalls nor noise
    make a trend.
    """
    column = STEP_PHASES.index(phase)
    whole = _rise([step.phases_ns[column] / 1e6 for step in steps], every_epoch=False)
    if whole is not None:
        return whole
    epochs = [[step.phases_ns[column] / 1e6 for step in epoch] for epoch in _epochs(steps)]
    long_enough = [epoch for epoch in epochs if len(epoch) >= MIN_STEPS]
    rises = [rise for epoch in long_enough if (rise := _rise(epoch, every_epoch=True))]
    if len(long_enough) < 2 or len(rises) < WORST_EPOCHS * len(long_enough):
        return None
    return Growth(
        first_ms=median([rise.first_ms for rise in rises]),
        last_ms=median([rise.last_ms for rise in rises]),
        extra_ms=median([rise.extra_ms for rise in rises]),
        n=sum(rise.n for rise in rises),
        every_epoch=True,
    )


def _epochs(steps: Sequence[Step]) -> list[list[Step]]:
    return [list(group) for _, group in groupby(steps, key=lambda step: step.epoch)]


def _rise(values: Sequence[float], *, every_epoch: bool) -> Growth | None:
    if len(values) < MIN_STEPS:
        return None
    third = len(values) // 3
    first, middle, last = values[:third], values[third:-third], values[-third:]
    start, end = median(first), median(last)
    if end < FACTOR * start or end <= 0 or not start <= median(middle) <= end:
        return None
    if quantile(first, 0.75) >= quantile(last, 0.25):
        return None
    extra = sum(values) / len(values) - start
    return Growth(start, end, max(0.0, extra), len(values), every_epoch)
