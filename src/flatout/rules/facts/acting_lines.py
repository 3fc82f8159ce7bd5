"""Which of the sampled lines collect, inside the steps, what these or the next steps learn from."""

import ast
from collections.abc import Iterable

from flatout.analysis.rollouts import rows_come_back
from flatout.rules.facts.user_lines import costs, seconds
from flatout.rules.source.source_code import ancestors
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run

__all__ = ["acting_lines", "mostly_acts"]

MOSTLY = 0.5

Region = tuple[str, int, int]  # a file, and its lines


def acting_lines(run: Run) -> tuple[LineCost, ...]:
    """Return what was seen before forward passes, as input, in the loops in which the model acts without gradients.

    Empty where the rows that it acted on are not trained on. A loop in which the model is trained, too, is none.
    """
    found = run.causes.collected if run.causes else None
    if found is None or not found.acting or not rows_come_back(found):
        return ()
    regions = {region for frame in found.acting for region in _around(frame, found.learning)}
    return costs(run, Phase.INPUT, keep=lambda cost: any(_within(frame, regions) for frame in cost.stack))


def mostly_acts(run: Run) -> bool:
    """Return whether most of what was seen before forward passes is acting."""
    acting = seconds(acting_lines(run))
    return acting > MOSTLY * seconds(costs(run, Phase.INPUT))


def _around(frame: Frame, learning: Iterable[Frame]) -> Iterable[Region]:
    """Yield the line itself and the outermost loop around it in which nothing is learned."""
    yield frame.file, frame.line, frame.line
    lines = [each.line for each in learning if each.file == frame.file]
    loops = (node for node in ancestors(frame) if isinstance(node, ast.For | ast.While))
    outermost: ast.For | ast.While | None = None
    for loop in loops:
        if any(loop.lineno <= line <= (loop.end_lineno or loop.lineno) for line in lines):
            break
        outermost = loop
    if outermost is not None:
        yield frame.file, outermost.lineno, outermost.end_lineno or outermost.lineno


def _within(frame: Frame, regions: Iterable[Region]) -> bool:
    return any(frame.file == file and first <= frame.line <= last for file, first, last in regions)
