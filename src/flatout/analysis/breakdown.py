"""The time account of a Run: what a step is made of, what lies between the steps, and that it all adds up.

Everything is summed in whole nanoseconds, so the account closes exactly:
`wall = start-up + warm-up steps + steady steps + what lies outside the steps + what nothing explains (other)`.
"""

from collections.abc import Sequence

from flatout.analysis.rollouts import collects
from flatout.analysis.statistics import median, quantile, robust_cv, steady_start
from flatout.schema.finding import Breakdown, OutsideShare, PhaseShare
from flatout.schema.phase import OUTSIDE_PHASES, STEP_PHASES, Phase
from flatout.schema.run import Run

__all__ = ["account"]

INPUT = STEP_PHASES.index(Phase.INPUT)

Row = tuple[int, ...]
"""Nanoseconds of one step by phase, in the order of `STEP_PHASES`."""


def account(run: Run) -> Breakdown:
    """Return the closed time account of `run` over its steady steps.

    Two kinds of time are moved out of the steps they were recorded in: what the first batch of an epoch took longer
    than other batches while workers restarted (`epoch_gap`), and what a validation without a loader added to the step
    it happened in (`validation`). The very first step keeps all of its time: it is warm-up.
    """
    rows = [step.phases_ns for step in run.steps]
    moved = {
        Phase.EPOCH_GAP: _move_epoch_gaps(run, rows) * max(1, run.steps_each),
        (Phase.ROLLOUT if collects(run) else Phase.VALIDATION): _move_validation(run, rows) * max(1, run.steps_each),
    }
    walls = [sum(row) for row in rows]
    warmup, each = _warmup(walls), max(1, run.steps_each)
    steady = walls[warmup:]
    outside, wall_ns = _outside(run, moved, round(sum(walls) * run.num_steps / max(1, len(walls))))
    warmup_ns = sum(walls[:warmup]) * each
    middle = median(steady) if steady else 0.0
    mean = sum(steady) / len(steady) if steady else 0.0
    excess = max(0.0, warmup_ns - warmup * each * middle)
    return Breakdown(
        phases=_phases(rows[warmup:]),
        outside=tuple(
            OutsideShare(phase, outside[phase] / 1e9, outside[phase] / wall_ns if wall_ns else 0.0)
            for phase in OUTSIDE_PHASES
        ),
        measured=max(len(steady), run.num_steps - warmup * each) if steady else 0,
        steps_each=each,
        warmup=warmup,
        warmup_s=warmup_ns / 1e9,
        median_ms=middle / 1e6,
        mean_ms=mean / 1e6,
        p5_ms=quantile(steady, 0.05) / 1e6 if steady else 0.0,
        p95_ms=quantile(steady, 0.95) / 1e6 if steady else 0.0,
        spread=robust_cv(steady) if steady else 0.0,
        samples_per_s=run.samples_per_step / (mean / 1e9) if run.samples_per_step is not None and mean > 0 else None,
        wall_s=wall_ns / 1e9,
        loop_s=max(0.0, wall_ns - outside[Phase.STARTUP] - excess) / 1e9,
        step_ms=tuple(wall / 1e6 for wall in steady),
    )


def _warmup(walls: Sequence[int]) -> int:
    """Return how many steps to leave out; the first one always, unless nearly nothing would remain."""
    return max(steady_start(walls), 1 if len(walls) > 3 else 0)


def _phases(rows: Sequence[Row]) -> tuple[PhaseShare, ...]:
    """Return every phase of the step with its mean and its share."""
    totals = [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * len(STEP_PHASES)
    whole = sum(totals)
    return tuple(
        PhaseShare(phase, total / len(rows) / 1e6 if rows else 0.0, total / whole if whole else 0.0)
        for phase, total in zip(STEP_PHASES, totals, strict=True)
    )


def _move_epoch_gaps(run: Run, rows: list[Row]) -> int:
    """Take from each epoch's first step what its input took longer than usual; return the nanoseconds taken."""
    if not any(loader.is_training and loader.num_workers > 0 for loader in run.loaders):
        return 0
    others = [row[INPUT] for step, row in zip(run.steps, rows, strict=True) if not step.first_of_epoch]
    if not others:
        return 0
    usual = round(median(others))
    moved = 0
    for position, step in enumerate(run.steps):
        row = rows[position]
        excess = row[INPUT] - usual
        if position > 0 and step.first_of_epoch and excess > 0:
            rows[position] = (*row[:INPUT], usual, *row[INPUT + 1 :])
            moved += excess
    return moved


def _move_validation(run: Run, rows: list[Row]) -> int:
    """Take from each step with a validation in it what it took longer than the others; return the nanoseconds taken.

    A forward pass without gradients in half of the steps or more is part of the training (a teacher, a target network).
    """
    others = [row for step, row in zip(run.steps, rows, strict=True) if not step.forward_without_grad]
    if not others or len(others) * 2 <= len(rows):
        return 0
    usual = tuple(round(median(column)) for column in zip(*others, strict=True))
    usual_wall = round(median([sum(row) for row in others]))
    moved = 0
    for position, step in enumerate(run.steps):
        if position > 0 and step.forward_without_grad:
            rows[position], taken = _without_excess(rows[position], usual, sum(rows[position]) - usual_wall)
            moved += taken
    return moved


def _without_excess(row: Row, usual: Row, excess: int) -> tuple[Row, int]:
    """Return `row` less `excess`, taken from its phases in proportion to how far each lies above `usual`."""
    above = [max(0, spent - expected) for spent, expected in zip(row, usual, strict=True)]
    whole = sum(above)
    excess = min(excess, whole)
    if excess <= 0:
        return row, 0
    taken = [part * excess // whole for part in above]
    return tuple(spent - part for spent, part in zip(row, taken, strict=True)), sum(taken)


def _outside(run: Run, moved: dict[Phase, int], steps_ns: int) -> tuple[dict[Phase, int], int]:
    """Return the nanoseconds of each phase outside the steps, and those of the whole recording."""
    launched = run.header.launched_ns
    last = max(
        [run.end.at_ns, launched]
        + [step.start_ns + step.wall_ns for step in run.steps[-1:]]
        + [stretch.start_ns + stretch.wall_ns for stretch in run.outside]
    )
    first = run.steps[0].start_ns if run.steps else last
    totals = dict.fromkeys(OUTSIDE_PHASES, 0)
    startup = first - launched
    for stretch in run.outside:
        totals[stretch.phase if stretch.phase in totals else Phase.OTHER] += stretch.wall_ns
        startup -= max(0, min(stretch.start_ns + stretch.wall_ns, first) - max(stretch.start_ns, launched))
    for phase, nanoseconds in moved.items():
        totals[phase] += nanoseconds
    totals[Phase.STARTUP] += max(0, startup)
    known = sum(totals.values()) + steps_ns
    wall_ns = max(last - launched, known)
    totals[Phase.OTHER] += wall_ns - known
    return totals, wall_ns
