"""Tell from the user's source whether a function acts in an environment of reinforcement learning."""

import ast

from flatout.rules.source.source_code import Function, ancestors
from flatout.schema.run import Frame

__all__ = ["acts", "steps_at"]

_LEAST_RESULTS = 2  # of a step: an observation and a reward


def acts(frame: Frame) -> bool:
    """Return whether the function around a line steps an environment: `observation, reward, ... = env.step(action)`.

    An optimizer's or scheduler's step is given no action, and returns nothing that is taken apart.
    """
    function = next((node for node in ancestors(frame) if isinstance(node, Function)), None)
    nodes = ast.walk(function) if function is not None else ()
    return any(isinstance(node, ast.Assign) and _steps(node) for node in nodes)


def steps_at(frame: Frame) -> bool:
    """Return whether the statement at a line steps an environment."""
    statement = next(iter(ancestors(frame)), None)
    return isinstance(statement, ast.Assign) and _steps(statement)


def _steps(assignment: ast.Assign) -> bool:
    call, target = assignment.value, assignment.targets[0]
    parts = target.elts if isinstance(target, ast.Tuple) else ()
    stepped = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "step"
    return stepped and bool(call.args) and len(parts) >= _LEAST_RESULTS  # type: ignore[attr-defined]
