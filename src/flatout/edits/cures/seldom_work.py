"""Work whose result one branch alone uses, moved into that branch: a metric of each step that is printed every 50th.

    auc = scores.auc()                        if i % 40 == 0:
    if i % 40 == 0:                               auc = scores.auc()
        print(f"auc {auc:.4f}")                   print(f"auc {auc:.4f}")

The work must have no effect but its result, as far as the text proves it: an object that counts what it is called with
would count less at the end of an epoch, which no trial of a few steps sees. Where something between the work and the
branch may change what the work reads, such as the optimizer's step, the work stays in its place, under the condition of
the branch. An error that the work raises is no longer raised in the steps that leave it out; where somebody would catch
it and go on, the work is left as it is.
"""

import ast
from collections.abc import Iterator, Sequence

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import block_of, loads, stores
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.purity.caught_errors import caught_at
from flatout.edits.reading.purity.effects import Effects
from flatout.edits.reading.purity.seldom_names import leaves, seldom_names
from flatout.edits.reading.purity.steady_conditions import SteadyConditions
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.training_loops import trains
from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["into_branch"]

_DEPTH = 4  # functions that call one another, from the loop to the finding's line
_MOST_PLACES = 20
_SIMPLE = ast.Name | ast.Constant | ast.Attribute
_Place = tuple[SourceFile, ast.stmt, ast.If]


def into_branch(place: EditPlace) -> WrittenEdit:
    """Move the work on the finding's line, or the call that leads there, into the branch that uses its result."""
    found = list(_places(place))
    if not found:
        return place.left("what is computed here is used by more than the body of one `if` behind it, or by none")
    effects, left = Effects(place.project), ""
    for source, unit, branch in found:
        moving = _Moving(place, effects, source, branch)
        reason = effects.of(source, unit) or moving.reason(unit)
        if reason:
            left = left or source.at(unit, reason)
            continue
        try:
            return moving.done(unit)
        except Unplaced:
            left = left or source.at(unit, "the change does not fit on this line")
    return place.left(left)


def _places(place: EditPlace) -> Iterator[_Place]:
    """Yield statements that compute what the finding's line does, with the branch that alone uses their result.

    The line itself comes first, then the lines that call the function around it, first those of loops that train.
    """
    todo = [(place.source, place.statement, 0)]
    seen: set[ast.AST] = set()
    for source, statement, depth in todo:  # grows while it is read
        yield from _branches(source, statement)
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


def _branches(source: SourceFile, statement: ast.stmt) -> Iterator[_Place]:
    """Yield a statement, or the `with` around it, with the branches behind it that alone use what it binds."""
    scope = source.scope(statement)
    for unit in (statement, *(each for each in source.above(statement) if isinstance(each, ast.With))):
        if source.scope(unit) is not scope or isinstance(scope, ast.ClassDef | ast.Lambda):
            return
        block = block_of(source, unit) if leaves(unit) else []
        for branch in block[block.index(unit) + 1 :] if block else ():
            if isinstance(branch, ast.If) and unit in seldom_names(source, block, branch):
                yield source, unit, branch


class _Moving:
    """The move of all that one branch alone uses, with the reasons that speak against it."""

    def __init__(self, place: EditPlace, effects: Effects, source: SourceFile, branch: ast.If) -> None:
        self._place, self._effects, self._source, self._branch = place, effects, source, branch
        self._block = block_of(source, branch)

    def reason(self, unit: ast.stmt) -> str:
        """Return why nothing can be moved, "" where something can."""
        names = {name for leaf in leaves(unit) for name in leaf.binds}
        for _, node in self._place.project.nodes(ast.Global, ast.Nonlocal, ast.alias):
            shared = {*node.names} if not isinstance(node, ast.alias) else {node.name}
            if shared & names:
                return f"{', '.join(shared & names)} is a name of other functions, too"
        catcher = caught_at(self._place.project, self._source, unit)
        if catcher:
            return f"an error in it would be caught by {catcher}"
        of_frames = {"locals", "globals", "vars", "eval", "exec"} & loads([self._source.tree])
        if of_frames:
            return f"{min(of_frames)}() may read it"
        test = self._effects.of(self._source, self._branch.test)
        return f"the branch's condition: {test}" if test else ""

    def done(self, unit: ast.stmt) -> WrittenEdit:
        """Make the move, or put the work under the condition of the branch where it stands."""
        for moved in (self._moved(unit), self._moved(unit, alone=True)):
            if unit not in moved:
                continue
            between = self._block[self._block.index(moved[0]) : self._block.index(self._branch)]
            try:
                if all(self._is_harmless(each, moved) for each in between if each not in moved):
                    return self._moved_down(moved)
            except Unplaced:  # `if step % 50 == 0: print(loss)`
                pass
            if SteadyConditions(self._place.project, self._source, between).is_steady(self._branch.test):
                return self._under_condition(moved)
        return self._place.left("what it reads, or the condition of the branch, may change between the two")

    def _moved(self, unit: ast.stmt, *, alone: bool = False) -> list[ast.stmt]:
        """Return the statement with the others before the branch that it alone uses, in order."""
        before = self._block[: self._block.index(self._branch)]
        others = [each for each in before if not alone and leaves(each) and not _is_simple(each)]
        pure = [each for each in before if each is unit or (each in others and self._is_pure(each))]
        return seldom_names(self._source, self._block, self._branch, pure)

    def _is_pure(self, statement: ast.stmt) -> bool:
        return not self._effects.of(self._source, statement)

    def _is_harmless(self, statement: ast.stmt, moved: Sequence[ast.stmt]) -> bool:
        """Return whether a statement changes nothing that the work moved over it reads."""
        at = self._block.index(statement)
        over = [each for each in moved if self._block.index(each) < at]
        read = loads(over)
        for each in (function for unit in over for function in self._effects.reached(self._source, unit)):
            read |= loads([each])
        if read & stores([statement]):
            return False
        return _counts(self._source, statement) or self._is_pure(statement)

    def _moved_down(self, moved: Sequence[ast.stmt]) -> WrittenEdit:
        changes = TextChanges(self._source)
        lines = [line for each in moved for line in changes.written(each)]
        for each in moved:
            changes.remove(each)
        changes.before(self._branch.body[0], *lines)
        return WrittenEdit(changes.done(self._place.project), changed=1)

    def _under_condition(self, moved: Sequence[ast.stmt]) -> WrittenEdit:
        changes = TextChanges(self._source)
        test = self._branch.test
        head = f"if {ast.unparse(test) if test.lineno != test.end_lineno else changes.text(test)}:"
        for run in _runs(self._block, moved):
            changes.indented(run[0], head, *run[1:])
        return WrittenEdit(changes.done(self._place.project), changed=1)


def _runs(block: Sequence[ast.stmt], moved: Sequence[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield statements that follow one another, together."""
    run: list[ast.stmt] = []
    for each in moved:
        if run and block.index(each) != block.index(run[-1]) + 1:
            yield run
            run = []
        run.append(each)
    yield run


def _is_simple(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, _SIMPLE)


def _counts(source: SourceFile, statement: ast.stmt) -> bool:
    """Return whether a statement adds a number to a variable that is bound to numbers alone: `total += loss.item()`."""
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.target, ast.Name):
        return False
    name, scope = statement.target.id, source.scope(statement)
    for node in ast.walk(scope):
        if isinstance(node, ast.arg) and node.arg == name:
            return False
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            above = source.statement(node)
            values = [value for target, value in pairs(above) if target is node]
            values += [above.value] if isinstance(above, ast.AugAssign) and above.target is node else []
            if not values or not all(map(_is_number, values)):
                return False
    return True


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(op=ast.USub()):
            return _is_number(node.operand)
        case ast.BinOp():
            return _is_number(node.left) and _is_number(node.right)
        case ast.Call(func=ast.Attribute(attr="item" | "numel"), args=[], keywords=[]):
            return is_plain_chain(node.func)
        case ast.Call(func=ast.Attribute(attr="size"), args=[_], keywords=[]):
            return is_plain_chain(node.func)
        case ast.Call(func=ast.Name(id="len" | "int" | "float"), args=[ast.Name() | ast.Attribute()], keywords=[]):
            return True
    return False


def is_plain_chain(node: ast.expr) -> bool:
    """Return whether an expression is a variable with attributes and parameterless methods: `loss.detach().item`."""
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Call) and (node.args or node.keywords):
            return False
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name)
