"""What the machine did while the steps ran."""

from statistics import fmean

from flatout.schema.run import Run, Utilization

__all__ = ["cores_in_use", "while_steps_ran"]


def while_steps_ran(run: Run) -> tuple[Utilization, ...]:
    """Return the samples of the machine taken between the first step's start and the last step's end."""
    if not run.steps:
        return ()
    launched = run.header.launched_ns
    first = (run.steps[0].start_ns - launched) / 1e9
    last = (run.steps[-1].start_ns + run.steps[-1].wall_ns - launched) / 1e9
    return tuple(sample for sample in run.utilization if first <= sample.at_s <= last)


def cores_in_use(run: Run) -> float | None:
    """Return the mean number of cores the training and its descendants used while steps ran; None when not sampled."""
    samples = while_steps_ran(run)
    return fmean(sample.main_cpu + sample.worker_cpu for sample in samples) if samples else None
