"""Loops of the forward pass that made many turns in the step that was counted, and whether the turns depend on another.

A turn depends on an earlier one where it reads what that has assigned (a recurrence, a stack of layers). A sum, a list
that grows, and rows that are filled in depend on nothing: one operation on all of them at once would do.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flatout.rules.source.loops import Loop, LoopAround, loops_around
from flatout.schema.run import Frame, Run

__all__ = ["CountedLoop", "counted_loops", "makes_few_turns", "turns_are_independent", "written"]

LEAST_TURNS = 6
_GROWS = frozenset({"append", "extend", "add", "update", "insert"})
_LEARNS = frozenset({"backward", "step", "zero_grad"})
_JOINS = frozenset({"cat", "concat", "stack", "maximum", "minimum", "max", "min", "logaddexp"})


@dataclass(frozen=True, slots=True)
class CountedLoop:
    """A loop around a line, and how many turns it makes each time that it is entered."""

    line: int  # where it begins
    turns: int
    independent: bool
    refines: bool  # each turn does to the result of the one before what that did: the number of turns is a choice


def counted_loops(run: Run, frame: Frame, *, least: int = LEAST_TURNS) -> Iterator[CountedLoop]:
    """Yield the loops around a line within its function that made many turns, innermost first."""
    counts = _counts(run, frame)
    if not counts:
        return
    for around in loops_around(frame):
        if _trains(around.loop):
            return
        turns = _turns(counts, around)
        if turns >= least:
            independent = turns_are_independent(around.loop, around.turn)
            yield CountedLoop(around.line, turns, independent, not independent and _refines(around))


def makes_few_turns(run: Run, frame: Frame, line: int) -> bool:
    """Return whether the loop around `frame` that begins at `line` was counted, and makes few turns each time."""
    counts = _counts(run, frame)
    turns = [_turns(counts, around) for around in loops_around(frame) if around.line == line] if counts else []
    return any(0 < each < LEAST_TURNS for each in turns)


def _trains(loop: Loop) -> bool:
    """Return whether a loop goes from batch to batch; what it is over may be called steps in a solver, too."""
    calls = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr in _LEARNS for call in calls)


def _counts(run: Run, frame: Frame) -> list[tuple[int, int]]:
    """Return lines and counts of the function of `frame`, comprehensions in it included."""
    own = frame.function.partition(".<locals>.<")[0]
    lines = run.causes.repeated_lines if run.causes else ()
    some = [each for each in lines if each.place.file == frame.file]
    return [(each.place.line, each.count) for each in some if each.place.function.partition(".<locals>.<")[0] == own]


def _turns(counts: Sequence[tuple[int, int]], around: LoopAround) -> int:
    """Return how many turns a loop makes each time: its first line runs once more than its body does."""
    loop = around.loop
    if isinstance(loop, ast.comprehension):
        first = around.turn[0]
        begins, ends = getattr(first, "lineno", around.line), getattr(first, "end_lineno", around.line)
        own = loop.target.lineno == begins  # a line that runs once more, to begin with
        return max((count for line, count in counts if begins <= line <= ends), default=0) - own
    body = max((count for line, count in counts if line == loop.body[0].lineno), default=0)
    heads = max((count for line, count in counts if line == around.line), default=0)
    if not 0 < body < heads:  # on one line, or what is in the body is a loop itself
        return max(heads, body) if min(heads, body) == 0 else heads - 1
    return body // (heads - body)


def turns_are_independent(loop: Loop, turn: Sequence[ast.AST]) -> bool:
    """Return whether no turn of a loop reads what an earlier one has made, but to add to it."""
    if isinstance(loop, ast.comprehension):
        return True
    if isinstance(loop, ast.While):
        return False
    read = _read_before(turn, set(written([loop.target])))
    return all(_only_gathers(turn, name) for name in read & set(written(turn)))


def _refines(around: LoopAround) -> bool:
    """Return whether a loop counts its turns, and picks no element of anything by their number."""
    loop = around.loop
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call) or ast.unparse(loop.iter.func) != "range":
        return False
    if any(word in ast.unparse(loop.iter) for word in ("shape", "size(", "len(")):
        return False
    names = set(written([loop.target]))
    picks = (node.slice for each in around.turn for node in ast.walk(each) if isinstance(node, ast.Subscript))
    return not any(names & _read(each) for each in picks)


def _read_before(statements: Sequence[ast.AST], known: set[str]) -> set[str]:
    """Return what `statements` read that neither `known` has nor an earlier one of them assigns."""
    found: set[str] = set()
    known = set(known)
    for statement in statements:
        if isinstance(statement, ast.For | ast.While | ast.If | ast.With):
            inner = [part for part in (getattr(statement, "target", None),) if part is not None]
            heads = [part for part in ast.iter_child_nodes(statement) if not isinstance(part, ast.stmt)]
            for head in heads:
                found |= _read(head) - known
            within = known | set(written([*inner, *heads]))
            for branch in (statement.body, getattr(statement, "orelse", [])):
                found |= _read_before(branch, within)
            if isinstance(statement, ast.With):
                known |= set(written([statement]))
        else:
            found |= _read(statement) - known
            known |= set(written([statement]))
    return found


def written(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield what is assigned or added to: names, attributes, and what elements are assigned of."""
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield ast.unparse(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield ast.unparse(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _GROWS:
            yield ast.unparse(node.func.value)


def _read(node: ast.AST) -> set[str]:
    """Return the names and attributes that are read, those that elements are assigned of and sums among them."""
    found = {
        ast.unparse(inner)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Load)
    }
    sums = (inner.target for inner in ast.walk(node) if isinstance(inner, ast.AugAssign))
    return found | {ast.unparse(target) for target in sums if isinstance(target, ast.Name | ast.Attribute)}


def _only_gathers(turn: Sequence[ast.AST], name: str) -> bool:
    """Return whether `name` is read to be added to, and for nothing else."""
    reads = sum(
        1
        for each in turn
        for inner in ast.walk(each)
        if isinstance(inner, ast.Name | ast.Attribute)
        and isinstance(inner.ctx, ast.Load)
        and ast.unparse(inner) == name
    )
    gathers = [part for each in turn for inner in ast.walk(each) for part in _gathered(inner, name)]
    return reads == sum(gathers)


def _gathered(node: ast.AST, name: str) -> Iterator[int]:
    """Yield how many reads of `name` one node explains: a sum, a join, a list that grows, an element assigned."""
    if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
        yield sum(ast.unparse(part) == name for part in _operands(node.value))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        grows = isinstance(function, ast.Attribute) and function.attr in _GROWS
        yield int(grows and ast.unparse(getattr(function, "value", function)) == name)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        yield int(ast.unparse(node.value) == name)


def _operands(value: ast.expr) -> Iterator[ast.expr]:
    """Yield what is added up or joined."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub | ast.Mult):
        yield from _operands(value.left)
        yield from _operands(value.right)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _JOINS:
        for argument in value.args:
            yield from argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
    else:
        yield value
