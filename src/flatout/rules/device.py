"""What the device did while the steps ran, by its own clock."""

from statistics import fmean

from flatout.schema.finding import Breakdown
from flatout.schema.run import Run

__all__ = ["device_ms", "idle_ms"]


def device_ms(run: Run, breakdown: Breakdown) -> float | None:
    """Return the device time of a mean steady step, in milliseconds; None where it was not measured."""
    measured = [sum(step.device_ns) for step in run.steps[breakdown.warmup :] if step.device_ns]
    return fmean(measured) / 1e6 if measured else None


def idle_ms(run: Run, breakdown: Breakdown) -> float | None:
    """Return the milliseconds of a mean steady step in which the device runs none of its phases."""
    busy = device_ms(run, breakdown)
    return None if busy is None else max(0.0, breakdown.mean_ms - busy)
