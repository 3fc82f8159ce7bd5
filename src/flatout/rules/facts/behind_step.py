"""Which of the sampled lines stand behind the optimizer's step in the loop that trains.

Between a step and the next forward pass nothing but the text tells what belongs to the step that is over (a metric, an
average of the weights) and what makes the next batch.
"""

import ast
from collections import defaultdict

from flatout.rules.facts.user_lines import costs
from flatout.rules.source.source_code import ancestors
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LineCost, Run

__all__ = ["behind_step"]

_LOOPS = ast.For | ast.While

_Loops = dict[tuple[str, int], int]


def behind_step(run: Run, seen: tuple[LineCost, ...]) -> tuple[LineCost, ...]:
    """Return those of the lines that are at, or called from, a line behind the step in the loop around it."""
    loops = _stepping_loops(run)
    return tuple(cost for cost in seen if any(_is_behind(frame, loops) for frame in cost.stack))


def _stepping_loops(run: Run) -> _Loops:
    """Return the innermost loops with a line that steps an optimizer: by file and first line, the last such line."""
    found: _Loops = defaultdict(int)
    for cost in costs(run, Phase.OPTIMIZER):
        for frame in cost.stack:
            loop = _loop(frame)
            if loop is not None:
                found[frame.file, loop.lineno] = max(found[frame.file, loop.lineno], frame.line)
    return found


def _is_behind(frame: Frame, loops: _Loops) -> bool:
    for node in ancestors(frame):
        if isinstance(node, _LOOPS) and (frame.file, node.lineno) in loops:
            return frame.line > loops[frame.file, node.lineno]
    return False


def _loop(frame: Frame) -> ast.For | ast.While | None:
    return next((node for node in ancestors(frame) if isinstance(node, _LOOPS)), None)
