"""How long the device was busy and idle in a step, by its own clock."""

from statistics import fmean

from flatout.schema.finding import Breakdown
from flatout.schema.run import Run

__all__ = ["device_ms", "idle_ms"]


def device_ms(run: Run, breakdown: Breakdown) -> float | None:
    """Return the device time of a mean steady step, in milliseconds; None where it was not measured.

    Device events enclose forward, backward and optimizer. Other work of the device (augmentation, a metric) is known
    only where the deep run recorded kernels and copies: the longer of the two times counts.
    """
    measured = [sum(step.device_ns) for step in run.steps[breakdown.warmup :] if step.device_ns]
    if not measured:
        return None
    work = run.causes.device_work if run.causes is not None else None
    busy_s = work.busy_s / work.num_steps if work is not None and work.num_steps > 0 else 0.0
    return max(fmean(measured) / 1e6, busy_s * 1e3)


def idle_ms(run: Run, breakdown: Breakdown) -> float | None:
    """Return the milliseconds of a mean steady step in which the device is idle; None where that was not measured."""
    busy = device_ms(run, breakdown)
    return None if busy is None else max(0.0, breakdown.mean_ms - busy)
