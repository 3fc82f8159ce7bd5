"""What a recipe gives a whole training: its start-up, its first epoch and its later ones put together."""

from dataclasses import dataclass
from statistics import median

from flatout.analysis.epochs import Epoch, project_epoch
from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.schema.whole_training import TrainingTimes, WholeTraining

__all__ = ["Gains", "whole_gain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gains:
    """What was measured of a recipe against the untouched script."""

    later: float  # speed-up of a step from the second epoch on
    first: float | None = None  # in the first epoch; None: it was not timed
    once_s: float = 0.0  # seconds that its start takes longer: examining data sets, compilation
    between: float = 1.0  # speed-up of what lies between epochs


def whole_gain(run: Run, breakdown: Breakdown, gains: Gains) -> WholeTraining | None:
    """Return what a recipe gives the training of `run`; None where the length of an epoch is not known.

    A training whose loops count steps is one epoch of so many. `flatout run` starts the process and attaches to it;
    what attaching took while recording stands for either.
    """
    epochs, epoch = _length(run, breakdown)
    if epoch is None:
        return None
    steps_s = epoch.seconds - epoch.between_s
    warmup_s = breakdown.warmup_s - breakdown.warmup * breakdown.mean_ms / 1e3  # beyond what those steps usually take
    startup_s = breakdown.outside_s(Phase.STARTUP) + max(0.0, warmup_s)
    own_s = min(startup_s, run.header.attaching_s)  # not the script's
    plain = TrainingTimes(
        startup_s=startup_s - own_s, first_epoch_s=steps_s, later_epoch_s=steps_s, between_s=epoch.between_s
    )
    tuned = TrainingTimes(
        startup_s=startup_s + own_s + max(0.0, gains.once_s),  # no fix makes a start shorter: less is noise
        first_epoch_s=steps_s / (1.0 if gains.first is None else gains.first),
        later_epoch_s=steps_s / gains.later,
        between_s=epoch.between_s / gains.between,
    )
    return WholeTraining(
        epochs=epochs, steps=epoch.steps, plain=plain, tuned=tuned, first_known=gains.first is not None
    )


def _length(run: Run, breakdown: Breakdown) -> tuple[int, Epoch | None]:
    """Return the number of epochs that the script asks for, 0 where that is not known, and one of them."""
    planned = run.planned
    epoch = project_epoch(run, breakdown)
    if not (planned.steps or planned.updates) or breakdown.mean_ms <= 0:
        return planned.passes, epoch
    per_step = max(1, round(median([step.num_batches for step in run.steps]))) if run.steps else 1
    steps = planned.updates or max(1, planned.steps // per_step)
    if epoch is not None and epoch.ended:  # loops that count steps, over epochs that end
        return max(1, round(steps / epoch.steps)), epoch
    return 1, Epoch(steps, steps * breakdown.mean_ms / 1e3, 0.0, 0.0, 0)
