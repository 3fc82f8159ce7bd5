"""Work whose result one branch alone uses, done where that branch is taken: a metric that is printed every 50th step.

    auc = (scores > 0.5).float().mean()       if i % 50 == 0 or type(scores) is not torch.Tensor:
    if i % 50 == 0:                               auc = (scores > 0.5).float().mean()
        print(f"auc {auc:.4f}")               if i % 50 == 0:
                                                  print(f"auc {auc:.4f}")

The work stays in its place, so that it reads what it read. It is proven to compute something of plain tensors, arrays
and numbers and to do nothing else; what the text does not show to be one is asked when the script runs. Nothing in the
project may see that it is left out. An error that it raises is no longer raised in the steps that leave it out; where
somebody might catch it and go on, the work is left as it is.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.purity.caught_errors import caught_at
from flatout.edits.reading.purity.plain_values import Unproven
from flatout.edits.reading.purity.plain_work import PlainWork
from flatout.edits.reading.purity.seldom_names import seldom_run
from flatout.edits.reading.purity.steady_conditions import is_bound_before, module_name, steady_condition
from flatout.edits.reading.purity.watched_code import patched_names, watched_by
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.training_loops import trains
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["into_branch"]

_DEPTH = 4  # functions that call one another, from the loop to the finding's line
_MOST_PLACES = 20
_CONTAINERS = ast.List | ast.Dict | ast.Set | ast.Tuple | ast.ListComp | ast.DictComp | ast.SetComp
_ASKED = frozenset({"type", "isinstance", "int", "float", "getattr"})


@dataclass(frozen=True)
class _Work:
    """Neighbouring statements of a block, from `first` to `last`, whose results the body of a branch alone uses."""

    source: SourceFile
    block: Sequence[ast.stmt]
    first: int
    last: int
    branch: ast.If

    @property
    def run(self) -> Sequence[ast.stmt]:
        """The statements."""
        return self.block[self.first : self.last + 1]


def into_branch(place: EditPlace) -> WrittenEdit:
    """Put the work on the finding's line, or the call that leads there, under the condition of the branch."""
    left = ""
    for work in _places(place):
        try:
            return _under_condition(place, work)
        except Unproven as error:
            left = left or str(error)
        except Unplaced:
            left = left or work.source.at(work.run[0], "the change does not fit on this line")
    return place.left(left or "what is computed here is used by more than the body of one `if` behind it, or by none")


def _places(place: EditPlace) -> Iterator[_Work]:
    """Yield statements that compute what the finding's line does, with the branch that alone uses their result.

    The line itself comes first, then the lines that call the function around it, first those of loops that train.
    """
    todo = [(place.source, place.statement, 0)]
    seen: set[ast.AST] = set()
    for source, statement, depth in todo:  # grows while it is read
        yield from _works(source, statement)
        scope = next((each for each in source.above(statement) if isinstance(each, Function)), None)
        if scope is None or scope in seen or depth == _DEPTH:
            continue
        seen.add(scope)
        calls = [(at, call) for at, call in place.project.nodes(ast.Call) if last_name(call.func) == scope.name]
        calls.sort(key=lambda each: not _is_in_training(place, *each))
        todo += [(at, at.statement(call), depth + 1) for at, call in calls[:_MOST_PLACES]]


def _is_in_training(place: EditPlace, source: SourceFile, call: ast.Call) -> bool:
    loops = (each for each in source.above(call) if isinstance(each, ast.For | ast.While))
    return any(trains(place.project, source, each) for each in loops)


def _works(source: SourceFile, statement: ast.stmt) -> Iterator[_Work]:
    """Yield a statement, or one around it, with its neighbours and the branch behind them that uses what they bind."""
    scope = source.scope(statement)
    for unit in (statement, *(each for each in source.above(statement) if isinstance(each, ast.stmt))):
        if unit is scope or source.scope(unit) is not scope:
            return
        block = block_of(source, unit)
        for branch in block[block.index(unit) + 1 :]:
            if isinstance(branch, ast.If):
                first, last = seldom_run(source, block, block.index(unit), block.index(unit), branch)
                if first >= 0:
                    yield _Work(source, block, first, last, branch)


def _under_condition(place: EditPlace, work: _Work) -> WrittenEdit:
    """Write the condition before the work.

    Raises:
        Unproven: somebody might notice.
        Unplaced: there is no place for it.
    """
    work, proof = _widened(place, work, _proven(place, work))
    source, at, before = work.source, work.run[0], work.block[work.first : work.block.index(work.branch)]
    seen = _seen_by(place, work, proof)
    if seen:
        raise Unproven(seen if seen.startswith(source.shown) else source.at(at, seen))
    condition = steady_condition(place.project, source, before, work.branch.test)
    if condition is None:
        raise Unproven(source.at(work.branch, "the branch's condition cannot be told before"))
    numbers = {name for name in condition.whole if proof.asked.get(name, set()) <= {"number", "sure"}}
    asked = [_question(work, name, proof.asked) for name in proof.asked if name not in numbers]
    changes = TextChanges(source)
    parts = dict.fromkeys([*condition.asked, condition.text, *filter(None, asked)])
    changes.indented(at, f"if {' or '.join(parts)}:", *work.run[1:])
    return WrittenEdit(changes.done(place.project), changed=1)


def _widened(place: EditPlace, work: _Work, proof: PlainWork) -> tuple[_Work, PlainWork]:
    """Return the work with those before and behind it that go with it."""
    for step in (-1, 1):
        while True:
            first, last = min(work.first, work.first + step), max(work.last, work.last + step)
            if first < 0 or last >= work.block.index(work.branch):
                break
            first, last = seldom_run(work.source, work.block, first, last, work.branch)
            try:
                wider = _Work(work.source, work.block, first, last, work.branch)
                proof = _proven(place, wider)
            except Unproven:
                break
            work = wider
    return work, proof


def _proven(place: EditPlace, work: _Work) -> PlainWork:
    """Return the proof that the work does nothing but to compute, and can be asked for what is not known.

    Raises:
        Unproven: there is none.
    """
    if not work.run:
        raise Unproven("it is used by more")
    source, at = work.source, work.run[0]
    shown = {node.id for part in work.branch.body for node in ast.walk(part) if isinstance(node, ast.Name)}
    try:
        proof = PlainWork(place.project, source, work.run)
        unsure = min((shown & proof.changed) - proof.bound, default="")
        if unsure:
            raise Unproven(f"{unsure} may be as an earlier turn left it")
        for name in proof.asked:
            _question(work, name, proof.asked)
    except Unproven as error:
        raise Unproven(source.at(at, str(error))) from None
    return proof


def _seen_by(place: EditPlace, work: _Work, proof: PlainWork) -> str:
    """Return what might notice that the work is left out, or make something else of it."""
    source, at, project = work.source, work.run[0], place.project
    bound = [each for node in ast.walk(source.scope(at)) for each in pairs(node)]
    for target, value in bound:
        if isinstance(target, ast.Name) and target.id in proof.asked and isinstance(value, _CONTAINERS):
            return f"{target.id} is a container, whatever it holds"
    caught = caught_at(project, source, at)
    if caught:
        return f"an error in it might be caught by {caught}"
    is_script = source is project.script or isinstance(source.scope(at), Function)
    if not is_script or (source.scope(at) is source.tree and any(isinstance(e, ast.AnnAssign) for e in work.run)):
        return "other files may import its names"
    if proof.multiplies and "autocast" in project.mentions:
        return "autocast keeps what a product converts"
    patched = patched_names(project) & (proof.names | _ASKED | {"Tensor", "ndarray", "Module", "nn", "Namespace"})
    if patched:
        return f"{min(patched)} is set as an attribute of something else"
    return watched_by(project, models=any("model" in uses for uses in proof.asked.values()))


def _question(work: _Work, name: str, asked: Mapping[str, set[str]]) -> str:
    """Return the condition under which a variable is no plain value, "" where nothing is done with it.

    Raises:
        Unproven: it cannot be asked.
    """
    source, uses = work.source, asked[name] - {"sure"}
    torch, numpy = module_name(source, "torch"), module_name(source, "numpy")
    if not all(is_builtin(source, ast.Name(each), _ASKED) for each in _ASKED):
        raise Unproven("names of Python's are bound to something else")
    if "sure" not in asked[name] and not is_bound_before(source, name, work.run[0]):
        raise Unproven(f"{name} may be unbound")
    if not uses:
        return ""
    of_arrays = "array" in uses or (uses == {"number"} and any("array" in each for each in asked.values()))
    if of_arrays and "model" not in uses and numpy:
        return f"type({name}) is not {numpy}.ndarray or {name}.dtype.hasobject"
    if torch and uses == {"model"}:
        return f"not isinstance({name}, {torch}.nn.Module)"
    if not torch or "model" in uses:
        raise Unproven(f"{name} cannot be asked for its type")
    if "tensor" in uses:
        return f"type({name}) is not {torch}.Tensor"
    return f"type({name}) not in ({torch}.Tensor, int, float)"
