"""How long the host takes to launch the device's kernels, compared with the kernels' own time."""

from dataclasses import dataclass

from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import Run

__all__ = ["LAUNCHING", "Launches", "launches"]

LAUNCHING = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
MANY_KERNELS = 100  # in a step
SHORT_KERNEL_S = 25e-6
MAX_BUSY = 0.5
MIN_SHARE = 0.10


@dataclass(frozen=True, slots=True)
class Launches:
    """The kernels of a step on a CUDA device, and the host's time for forward, backward and optimizer."""

    number: float
    each_s: float
    kernels_ms: float
    host_ms: float
    share: float  # of the step by which the host takes longer than the kernels
    busy: float  # share of the profiled time in which the device does anything

    @property
    def leave_idle(self) -> bool:
        """Return whether kernels take at most half of the host's time, and the difference is a tenth of the step."""
        return 0 < self.kernels_ms <= MAX_BUSY * self.host_ms and self.share >= MIN_SHARE

    @property
    def many_and_short(self) -> bool:
        """Return whether the host is slowed by the number of kernels."""
        return self.number >= MANY_KERNELS and self.each_s <= SHORT_KERNEL_S


def launches(run: Run, breakdown: Breakdown) -> Launches | None:
    """Return the kernels that torch's profiler saw in the deep run, compared with host times of the timed run.

    None without a device or a kernel, and where most steps search for algorithms (CO016): then that occupies the host.
    """
    work = run.causes.device_work if run.causes is not None and run.environment.device_kind == "cuda" else None
    if work is None or work.num_steps <= 0 or work.num_kernels <= 0 or breakdown.mean_ms <= 0 or _searches(run):
        return None
    kernels_s = work.seconds.get("kernel", 0.0)
    kernels_ms = kernels_s / work.num_steps * 1e3
    host_ms = sum(map(breakdown.share, LAUNCHING)) * breakdown.mean_ms
    return Launches(
        number=work.num_kernels / work.num_steps,
        each_s=kernels_s / work.num_kernels,
        kernels_ms=kernels_ms,
        host_ms=host_ms,
        share=max(0.0, host_ms - kernels_ms) / breakdown.mean_ms,
        busy=work.busy_s / work.wall_s if work.wall_s > 0 else 0.0,
    )


def _searches(run: Run) -> bool:
    seen = run.causes.convolutions if run.causes is not None else None
    return seen is not None and seen.search == "on" and 2 * seen.new_steps >= max(1, seen.steps)
