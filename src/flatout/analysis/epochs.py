"""How long an epoch of the user's training is, in steps and in time, and how much of it the device waits."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import EpochEnd, Outside, Run

__all__ = ["Epoch", "ShortEpochs", "epoch_or_cycle", "epoch_steps", "project_epoch", "short_epochs", "with_epoch_end"]

WAITING = (Phase.INPUT, Phase.TRANSFER, Phase.SYNC)
BETWEEN = (Phase.VALIDATION, Phase.ROLLOUT, Phase.EPOCH_GAP, Phase.CHECKPOINT)

_SHORT, _SHORT_ENOUGH = 16, 24  # steps of an epoch that ends early, and of one that need not
_REGULAR = 1.2  # times the fewest steps between two validations, at most, where these come at equal distances
_WHOLE_SHARE = 1 / 6  # of the time in which results are compared, that a whole epoch may take


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch at the speed that was measured."""

    steps: int
    seconds: float  # steps, and what lies between them where a whole epoch was seen
    waiting_s: float  # in steps: for input, copies and the device
    between_s: float  # validation, checkpoints and gaps of one epoch; 0 where no epoch ended
    ended: int  # epochs that ended while recording


@dataclass(frozen=True, slots=True)
class ShortEpochs:
    """Where passes over loaders end early while results are compared."""

    batches: int = 0  # of a pass; 0: passes end by themselves
    first_whole: bool = False  # but the first one over each loader
    before: int = 0  # steps of another training that comes first


def short_epochs(run: Run, breakdown: Breakdown, window_s: float) -> ShortEpochs:
    """Return where passes are to end early, so that some epochs end in the `window_s` seconds of a comparison."""
    steps, before = epoch_steps(run), run.first_step - 1
    if steps <= _SHORT_ENOUGH or not any(loader.is_training for loader in run.loaders):
        return ShortEpochs(before=before)
    epoch = project_epoch(run, breakdown)
    takes_s = epoch.seconds if epoch is not None else float("inf")
    per_step = median([step.num_batches for step in run.steps]) if run.steps else 1
    return ShortEpochs(_SHORT * max(1, round(per_step)), takes_s <= _WHOLE_SHARE * window_s, before)


def epoch_steps(run: Run) -> int:
    """Return the number of steps of a whole epoch, 0 where none was seen and no loader tells."""
    if run.epoch_lengths:
        whole = run.epoch_lengths if _finished(run) else run.epoch_lengths[:-1]
        if whole:
            return int(median(whole))
    counts = Counter(step.epoch for step in run.steps)
    whole_ones = [counts[epoch] for epoch in counts if min(counts) < epoch < max(counts)]
    if whole_ones:
        return int(median(whole_ones))
    if len(counts) > 1:
        return counts[min(counts)]
    batches = max((loader.num_batches for loader in run.loaders if loader.is_training), default=0)
    per_step = median([step.num_batches for step in run.steps]) if run.steps else 1
    return int(batches / max(1, per_step))


def project_epoch(run: Run, breakdown: Breakdown) -> Epoch | None:
    """Return what an epoch takes at the measured speed; None where its length is not known."""
    steps = epoch_steps(run)
    if not steps or breakdown.mean_ms <= 0:
        return None
    ended = (len(run.epoch_lengths) or len({step.epoch for step in run.steps})) - (not _finished(run))
    between_s = sum(_after_start_s(run, breakdown, phase) for phase in BETWEEN) / ended if ended else 0.0
    if not ended and run.epoch_end is not None:
        ended, between_s = 1, run.epoch_end.whole_s
    step_s = breakdown.mean_ms / 1000
    waiting = sum(breakdown.share(phase) for phase in WAITING)
    return Epoch(steps, steps * step_s + between_s, steps * step_s * waiting, between_s, ended)


def epoch_or_cycle(run: Run, breakdown: Breakdown) -> Epoch | None:
    """Return what an epoch takes; where no loader tells its length, what lies from one validation to the next.

    Blocks of steps that are to hold a validation are of that length. It need not be the script's epoch.
    """
    epoch = project_epoch(run, breakdown)
    starts = [step.start_ns for step in run.steps]
    validated = [one for one in run.outside if one.phase == Phase.VALIDATION]
    places = sorted({bisect_right(starts, one.start_ns) for one in validated} - {0})
    if epoch is not None or not places or breakdown.mean_ms <= 0:
        return epoch
    lengths = [last - first for first, last in pairwise(places)] or [places[0] + run.first_step - 1]
    if max(lengths) > _REGULAR * min(lengths):
        return None
    steps, between_s = int(median(lengths)), _after_start_s(run, breakdown, Phase.VALIDATION) / len(places)
    return Epoch(steps, steps * breakdown.mean_ms / 1000 + between_s, 0.0, between_s, len(places))


def _after_start_s(run: Run, breakdown: Breakdown, phase: Phase) -> float:
    """Return the seconds of a phase outside of steps, without those before the first step: these come once."""
    begun = run.steps[0].start_ns if run.steps else 0
    before_s = sum(one.wall_ns for one in run.outside if one.phase == phase and one.start_ns < begun) / 1e9
    return max(0.0, breakdown.outside_s(phase) - before_s)


def with_epoch_end(run: Run, deep: Run) -> Run:
    """Return the timed Run with what the deep run saw at the end of its first epoch, where that is all that was seen.

    A deep run ends its first pass early, and passes of a validation after some batches: the rest of these is reckoned
    by the median of those that were timed.
    """
    if len({step.epoch for step in run.steps}) > 1 or len({step.epoch for step in deep.steps}) < 2:
        return run
    begun = deep.steps[0].start_ns
    seen = [stretch for stretch in deep.outside if stretch.start_ns > begun]
    spent = {phase: sum(one.wall_ns for one in seen if one.phase == phase) / 1e9 for phase in BETWEEN}
    end = EpochEnd(
        gap_s=spent[Phase.EPOCH_GAP],
        validation_s=spent[Phase.VALIDATION] + _left_out_s(deep, seen),
        checkpoint_s=spent[Phase.CHECKPOINT],
    )
    return replace(run, epoch_end=end if end.whole_s > 0 else None)


def _left_out_s(deep: Run, seen: Sequence[Outside]) -> float:
    """Return the seconds of the batches of validation loaders that the deep run left out."""
    timed = [one for one in seen if one.phase == Phase.VALIDATION and one.num_batches]
    batches = sum(loader.num_batches for loader in deep.loaders if not loader.is_training and loader.epochs_started)
    left = batches - sum(one.num_batches for one in timed)
    return left * median([one.wall_ns / one.num_batches for one in timed]) / 1e9 if timed and left > 0 else 0.0


def _finished(run: Run) -> bool:
    """Return whether the training was recorded to its own end."""
    return run.header.mode == "whole" and run.end.reason == "script ended"
