"""The validation passes of a recording."""

from flatout.rules.lines import costs, hottest
from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, Outside, Run

__all__ = ["passes", "place", "spent"]


def passes(run: Run) -> tuple[Outside, ...]:
    """Return the validations after the first training step; one before it is a check that happens once."""
    begun = run.steps[0].start_ns if run.steps else 0
    return tuple(stretch for stretch in run.outside if stretch.phase == Phase.VALIDATION and stretch.start_ns >= begun)


def spent(run: Run, breakdown: Breakdown) -> tuple[float, int]:
    """Return the seconds of validation after the first step, and how many passes that were.

    A validation without a loader happens inside a step; the account has moved its time out of there.
    """
    before_s = sum(
        stretch.wall_ns for stretch in run.outside if stretch.phase == Phase.VALIDATION and stretch not in passes(run)
    )
    seconds = min(max(0.0, breakdown.outside_s(Phase.VALIDATION) - before_s / 1e9), breakdown.loop_s)
    inside = sum(step.forward_without_grad for step in run.steps)
    return seconds, len(passes(run)) + (inside if inside * 2 <= len(run.steps) else 0)


def place(run: Run) -> Frame | None:
    """Return where validation happens: the loop over its loader, else the line that most of its time goes to."""
    loops = (loader.iterated_at for loader in run.loaders if not loader.is_training and loader.iterated_at)
    lines = costs(run, Phase.VALIDATION)
    spot = hottest(lines, among=lines)
    return next(loops, spot.place if spot else None)
