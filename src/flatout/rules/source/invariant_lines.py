"""Lines of a loop that compute the same in each of its turns, as far as the source tells."""

import ast
import re
from collections.abc import Iterator

from flatout.rules.source.loop_turns import written
from flatout.rules.source.loops import MOVE_OR_REDUCE, LoopAround

__all__ = ["is_invariant"]

_NUMERIC = re.compile(r"(torch|np|numpy|math|F|jnp|scipy)(\.\w+)*")
_DRAWS = re.compile(
    r"rand|normal|uniform|choice|shuffle|sample|dropout|perm|bernoulli|multinomial|seed|poisson|exponential|empty",
)
_OF_TENSORS = re.compile(rf"({MOVE_OR_REDUCE.pattern}|grad|matmul|mm|bmm|inverse|t|float|double|unfold)")


def is_invariant(around: LoopAround, line: int) -> bool:
    """Return whether the statement on a line in the body of a loop makes a new value that no turn changes.

    What it calls is torch's, NumPy's, or a method of tensors; it draws nothing, and reads nothing that the loop writes.
    """
    statement = next((each for each in _statements(around) if each.lineno <= line <= (each.end_lineno or 0)), None)
    if not isinstance(statement, ast.Assign) or not all(_are_names(target) for target in statement.targets):
        return False
    calls = [node for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
    if not calls or not all(_computes(call) for call in calls):
        return False
    others = [each for each in _statements(around) if each is not statement]
    changed = {*written(others), *written([statement])}
    target = getattr(around.loop, "target", None)
    changed |= set(written([target])) if target is not None else set()
    return changed.isdisjoint(_read(statement.value))


def _statements(around: LoopAround) -> Iterator[ast.stmt]:
    """Yield the statements of a turn, those of choices and loops within it among them."""
    for piece in around.turn:
        for node in ast.walk(piece):
            if isinstance(node, ast.stmt) and not hasattr(node, "body"):
                yield node


def _are_names(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(_are_names(each) for each in target.elts)
    return isinstance(target, ast.Name)


def _computes(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if _DRAWS.search(name):
        return False
    if _NUMERIC.fullmatch(name):
        return True
    return isinstance(call.func, ast.Attribute) and _OF_TENSORS.fullmatch(call.func.attr) is not None


def _read(value: ast.expr) -> set[str]:
    nodes = (node for node in ast.walk(value) if isinstance(node, ast.Name | ast.Attribute))
    return {ast.unparse(node) for node in nodes if isinstance(node.ctx, ast.Load)}
