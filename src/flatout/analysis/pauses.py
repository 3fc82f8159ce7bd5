"""After how many steps a training pauses for the first time: to validate, to save, between epochs."""

from collections import defaultdict
from statistics import median

from flatout.schema.phase import Phase
from flatout.schema.run import Run

__all__ = ["steps_to_a_pause"]

_PAUSES = (Phase.VALIDATION, Phase.EPOCH_GAP, Phase.CHECKPOINT)
_SHARE = 0.1  # of what was recorded, that such pauses take where they matter
_SOON_S = 15.0
_PASSED = 2  # steps after it


def steps_to_a_pause(run: Run) -> int:
    """Return how many steps a deep run has to make to see a pause that matters; 0 where it need not wait for one.

    A pass over a loader is ended early, so that the pause comes sooner; loops by hand go on as they are.
    """
    if not run.steps or any(loader.is_training for loader in run.loaders):
        return 0
    begun = run.steps[0].start_ns
    taken: dict[Phase, int] = defaultdict(int)
    first: dict[Phase, int] = {}
    for stretch in run.outside:
        if stretch.phase in _PAUSES and stretch.start_ns >= begun:
            taken[stretch.phase] += stretch.wall_ns
            first.setdefault(stretch.phase, stretch.start_ns)
    whole = sum(taken.values()) + sum(step.wall_ns for step in run.steps)
    known = [first[phase] for phase, spent in taken.items() if spent >= _SHARE * whole]
    if not known:
        return 0
    before = sum(step.start_ns < max(known) for step in run.steps)
    soon = before * median(step.wall_ns for step in run.steps) <= _SOON_S * 1e9
    return before + _PASSED if soon else 0
