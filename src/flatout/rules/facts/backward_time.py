"""Shares of the step that parts of the backward pass take, by its timed nodes or by the line sampler."""

from collections.abc import Sequence
from dataclasses import replace

from flatout.rules.facts.user_lines import costs, seconds
from flatout.schema.backward import BackwardFacts
from flatout.schema.finding import Breakdown
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run

__all__ = ["called_by_autograd", "inside", "share_of_lines", "share_of_nodes", "timed_nodes"]


def timed_nodes(run: Run) -> BackwardFacts | None:
    """Return what was seen of the backward pass; None where no node was timed."""
    found = run.causes.backward if run.causes else None
    return found if found is not None and found.steps and found.seconds > 0 else None


def share_of_nodes(found: BackwardFacts, breakdown: Breakdown, spent_s: float) -> float:
    """Return the share of the step of nodes that took `spent_s` a step."""
    return spent_s / found.seconds * breakdown.share(Phase.BACKWARD) if found.seconds > 0 else 0.0


def inside(run: Run, function: Frame, phase: Phase = Phase.BACKWARD) -> tuple[LineCost, ...]:
    """Return what was sampled of a phase inside a function, its innermost lines first in each stack."""

    def is_inside(cost: LineCost) -> bool:
        return any(frame.file == function.file and frame.function == function.function for frame in cost.stack)

    return costs(run, phase, keep=is_inside)


def called_by_autograd(cost: LineCost, functions: Sequence[Frame]) -> LineCost:
    """Return a sample without the frames around the first of `functions`: autograd calls it, not the line around it.

    That line is `loss.backward()` mostly, which reads as if it called a function of that name.
    """
    named = [(function.file, function.function) for function in functions]
    inside_it = next((at for at, frame in enumerate(cost.stack) if (frame.file, frame.function) in named), None)
    return cost if inside_it is None else replace(cost, stack=cost.stack[: inside_it + 1])


def share_of_lines(run: Run, breakdown: Breakdown, lines: Sequence[LineCost], phase: Phase = Phase.BACKWARD) -> float:
    """Return the share of the step of sampled lines of a phase."""
    whole = seconds(costs(run, phase))
    return breakdown.share(phase) * min(1.0, seconds(lines) / whole) if whole > 0 else 0.0
