"""The steps of the last seconds, and the sums of all: what a live view is worked out from, in bounded space."""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from flatout.schema.phase import STEP_PHASES
from flatout.schema.run import Outside, Step

__all__ = ["Window"]


class _Bucket(NamedTuple):
    """The steps that ended between two looks, and what lay around them."""

    start_ns: int
    end_ns: int
    steps: int
    batches: int
    phases_ns: tuple[int, ...]
    outside_ns: dict[str, int]


class Window:
    """Takes steps and stretches a handful at a time.

    It reaches back `seconds`, and further where fewer than `fewest` steps were made in them. A bucket holds a step at
    least, so there are never more of them than looks in `seconds` and `fewest` together.
    """

    def __init__(self, seconds: float = 5.0, fewest: int = 8) -> None:
        """Hold nothing yet."""
        self._reach_ns = round(seconds * 1e9)
        self._fewest = fewest
        self._buckets: deque[_Bucket] = deque()
        self._recent = 0
        self._epoch = -1
        self._epoch_batches = 0
        self._totals = [0] * len(STEP_PHASES)
        self.steps = 0
        self.last_ns = 0

    def add(self, steps: Sequence[Step], stretches: Sequence[Outside]) -> None:
        """Take what has ended since the last time."""
        outside: dict[str, int] = {}
        for stretch in stretches:
            outside[stretch.phase.value] = outside.get(stretch.phase.value, 0) + stretch.wall_ns
        if not steps:
            self._lengthen(outside, stretches)
            return
        phases = tuple(map(sum, zip(*[step.phases_ns for step in steps], strict=True)))
        starts = [steps[0].start_ns, *(stretch.start_ns for stretch in stretches)]
        ends = [steps[-1].start_ns + steps[-1].wall_ns, *(one.start_ns + one.wall_ns for one in stretches)]
        self.last_ns = ends[0]
        batches = sum([step.num_batches for step in steps])
        self._buckets.append(_Bucket(min(starts), max(ends), len(steps), batches, phases, outside))
        self._recent += len(steps)
        self.steps += len(steps)
        self._totals = [total + spent for total, spent in zip(self._totals, phases, strict=True)]
        if steps[-1].epoch != self._epoch:
            self._epoch, self._epoch_batches = steps[-1].epoch, 0
        self._epoch_batches += sum([step.num_batches for step in steps if step.epoch == self._epoch])
        self._forget()

    def _lengthen(self, outside: dict[str, int], stretches: Sequence[Outside]) -> None:
        """Add stretches without a step to what was before them."""
        if not self._buckets or not stretches:
            return
        last = self._buckets.pop()
        summed = {name: last.outside_ns.get(name, 0) + outside.get(name, 0) for name in last.outside_ns | outside}
        end = max(last.end_ns, *(one.start_ns + one.wall_ns for one in stretches))
        self._buckets.append(last._replace(end_ns=end, outside_ns=summed))

    def _forget(self) -> None:
        end = self._buckets[-1].end_ns
        while end - self._buckets[0].end_ns > self._reach_ns and self._recent - self._buckets[0].steps >= self._fewest:
            self._recent -= self._buckets.popleft().steps

    def fields(self) -> dict[str, Any]:
        """Return what the window says, as fields of a `RankNow`."""
        found: dict[str, Any] = {"steps": self.steps, "step_s": _by_phase(self._totals, 1e9)}
        if not self._buckets:
            return found
        phases = [sum(column) for column in zip(*(bucket.phases_ns for bucket in self._buckets), strict=True)]
        outside: dict[str, float] = {}
        for bucket in self._buckets:
            for name, spent in bucket.outside_ns.items():
                outside[name] = outside.get(name, 0.0) + spent / 1e9
        return found | {
            "recent_steps": self._recent,
            "span_s": (self._buckets[-1].end_ns - self._buckets[0].start_ns) / 1e9,
            "step_ms": sum(phases) / self._recent / 1e6,
            "phases_ms": _by_phase(phases, self._recent * 1e6),
            "outside_s": outside,
            "epoch": self._epoch + 1,
            "batches": self._epoch_batches,
            "batches_per_step": sum(bucket.batches for bucket in self._buckets) / self._recent,
        }


def _by_phase(spent: Sequence[int], unit: float) -> dict[str, float]:
    return {phase.value: value / unit for phase, value in zip(STEP_PHASES, spent, strict=True) if value}
