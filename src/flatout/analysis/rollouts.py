"""Whether passes without gradients between steps collect the data that the next steps learn from."""

from collections.abc import Set
from dataclasses import replace

from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Collected, Run

__all__ = ["acts_in_many_environments", "collects", "rows_come_back", "with_rollouts"]

_LEAST_SHARE = 0.25  # of the rows trained on: a replay buffer also holds what was collected before the recording
_LEAST_ROWS = 8
_FEW_ROWS = 8  # of a call
_LEAST_CALLS = 2  # in a step that acts in its environment: a teacher is called once


def collects(run: Run) -> bool:
    """Return whether the model is trained on what it was given without gradients before.

    Where every other step has such passes or more, they are part of the step: a teacher, a target network.
    """
    found = run.causes.collected if run.causes else None
    return found is not None and rows_come_back(found) and 2 * found.steps_with_calls <= found.steps


def acts_in_many_environments(run: Run) -> bool:
    """Return whether each step collects what it is trained on, by several calls of the policy with many rows each."""
    found = run.causes.collected if run.causes else None
    if found is None or not rows_come_back(found) or found.rows <= _FEW_ROWS * found.calls:
        return False
    return 2 * found.steps_with_calls > found.steps and found.calls >= _LEAST_CALLS * found.steps_with_calls


def rows_come_back(found: Collected) -> bool:
    """Return whether the rows of calls without gradients are trained on afterwards."""
    return found.matched >= max(_LEAST_ROWS, _LEAST_SHARE * found.checked)


def with_rollouts(run: Run) -> Run:
    """Return the Run with what looked like validation as rollouts, where that is what it is.

    Without a loader it is also what looked like the time between epochs: a policy need not be in evaluation mode.
    """
    if run.causes is None or not collects(run):
        return run
    alike = {Phase.VALIDATION} if run.loaders else {Phase.VALIDATION, Phase.EPOCH_GAP}
    outside = tuple(
        replace(stretch, phase=Phase.ROLLOUT) if stretch.phase in alike else stretch for stretch in run.outside
    )
    end = run.epoch_end
    if end is not None:
        end = replace(end, rollout_s=end.validation_s + end.rollout_s, validation_s=0.0)
    return replace(run, outside=outside, epoch_end=end, causes=_with_rollouts(run.causes, alike))


def _with_rollouts(causes: Causes, alike: Set[Phase]) -> Causes:
    lines = tuple(replace(cost, phase=Phase.ROLLOUT) if cost.phase in alike else cost for cost in causes.lines)
    return replace(causes, lines=lines)
