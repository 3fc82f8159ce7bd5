"""The line of a loop of plain Python that takes the time which samples see where the loop goes back.

Python lets another thread look where a loop goes back and where something is called, so that a sample of a line that
calls nothing, or calls C code that keeps the lock, is taken at the head of its loop. In one step the lines were traced
and clocked: what takes most of the loop there has its samples. A line that calls functions in Python has its own.
Where a loop ends with an `if`, Python 3.11 goes back in its last line, also where the body of the `if` was left out.
"""

import ast
from collections.abc import Sequence
from dataclasses import replace

from flatout.rules.source.source_code import ancestors
from flatout.schema.run import Frame, LineCost, RepeatedLine, Run

__all__ = ["in_their_lines"]

_CALLING = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MOST = 0.5  # of the traced time of a loop, in one line of its body


def in_their_lines(run: Run) -> Run:
    """Return the run with the costs at the head of a loop at the line of the loop that takes most of them."""
    causes = run.causes
    if causes is None:
        return run
    calling = {cost.stack[0] for cost in causes.lines if cost.stack and cost.leaf and cost.process == "main"}
    counted = [each for each in causes.repeated_lines if each.place not in calling]
    known: dict[Frame, int] = {}
    lines = []
    for cost in causes.lines:
        own = cost.process == "main" and cost.stack and not cost.leaf
        if own and cost.stack[0] not in known:
            known[cost.stack[0]] = _dearest(cost.stack[0], counted) or _condition(cost.stack[0])
        lines.append(_moved(cost, known[cost.stack[0]]) if own and known[cost.stack[0]] else cost)
    return replace(run, causes=replace(causes, lines=tuple(lines)))


def _moved(cost: LineCost, line: int) -> LineCost:
    return replace(cost, stack=(replace(cost.stack[0], line=line), *cost.stack[1:]))


def _dearest(head: Frame, counted: Sequence[RepeatedLine]) -> int:
    """Return the line of the loop that begins at `head` with most of its traced time; 0 where none has."""
    last = _loop_ends(head)
    inside = [each for each in counted if head.line <= each.place.line <= last and each.place.file == head.file]
    whole = sum(each.seconds for each in inside)
    best = max(inside, key=lambda each: each.seconds, default=None)
    return best.place.line if best is not None and best.seconds >= _MOST * whole > 0 else 0


def _condition(last: Frame) -> int:
    """Return the line of the `if` that ends a loop where `last` is the end of its body, which calls nothing; else 0."""
    around = ancestors(last)
    if not around or isinstance(around[0], _CALLING) or any(isinstance(node, ast.Call) for node in ast.walk(around[0])):
        return 0
    condition, inner = 0, around[0]
    for node in around[1:]:
        if isinstance(node, ast.If) and not node.orelse and node.body[-1] is inner:
            condition, inner = node.lineno, node
        else:
            ends = isinstance(node, ast.For | ast.While) and not node.orelse and node.body[-1] is inner
            return condition if ends else 0
    return 0


def _loop_ends(head: Frame) -> int:
    """Return the last line of the loop that begins at `head`; 0 where none does."""
    loop = next(iter(ancestors(head)), None)
    if not isinstance(loop, ast.For | ast.While) or loop.lineno != head.line:
        return 0
    return loop.end_lineno or loop.lineno
