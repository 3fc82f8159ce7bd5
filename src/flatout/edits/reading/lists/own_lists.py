"""Lists that one function makes and keeps to itself: nobody else can change them, whatever runs.

What may be done with such a list is told by a list of what may, not of what may not: each place that names it reads it,
or changes it there. At any other place somebody else may take hold of it; then it is the function's own only before.
"""

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from flatout.edits.reading.blocks import block_of, bound_as_words
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.lists.hidden_access import is_of_python
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["OwnList", "is_bound_before", "is_read_at_once", "makes_list"]

_READING = ("copy", "count", "index")  # methods of lists
_CHANGING = ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")
_MAKERS = ("list", "sorted", "tuple")
_AT_ONCE = ("all", "any", "frozenset", "len", "list", "max", "min", "repr", "set", "sorted", "str", "sum", "tuple")
_IN_TURN = ("enumerate", "reversed", "zip")  # what they give holds the list: only as what a loop goes through
_Inner = Function | ast.Lambda | ast.ClassDef


class OwnList:
    """A variable of a function's that stands for a list or tuple that it makes."""

    def __init__(self, source: SourceFile, function: Function, name: str) -> None:
        """Take the name as the function's own code has it."""
        self._source, self._function, self._name = source, function, name

    @cached_property
    def value(self) -> ast.expr | None:
        """What it is bound to, at the one place that binds it; None where there are others, or none that is seen."""
        function, name = self._function, self._name
        given = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
        if name in given | bound_as_words(function.body):
            return None
        if any(isinstance(n, ast.Global | ast.Nonlocal) and name in n.names for n in ast.walk(function)):
            return None
        stored = [node for node in self._places if not isinstance(node.ctx, ast.Load)]
        if len(stored) != 1 or self._is_inside(stored[0]):
            return None
        statement = self._source.statement(stored[0])
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or len(getattr(statement, "targets", [0])) != 1:
            return None  # no second name for one list
        return next((value for target, value in pairs(statement) if target is stored[0]), None)

    def leaves(self, start: ast.stmt) -> str:
        """Return why it may be another list when `start` begins, or be in other hands by its end; "" where neither."""
        if self.value is None or not makes_list(self._source, self.value):
            return f"{self._name} is no list that its function makes in one place"
        if not is_bound_before(self._source, start, self._name, self._function):
            return f"{self._name} may not be there before the loop"
        for node in self._places:
            held = isinstance(node.ctx, ast.Load) and (self._is_inside(node) or self._use(node) == "hands on")
            if held and not self._is_later(node, start):
                return f"{self._name} may be changed by what has it from line {self._source.statement(node).lineno}"
        return ""

    def changes_in(self, region: Sequence[ast.AST]) -> list[ast.Name]:
        """Return the places in code that bind it or change its items."""
        inside = {node for each in region for node in ast.walk(each)}
        found = [node for node in self._places if node in inside]
        return [node for node in found if not isinstance(node.ctx, ast.Load) or self._use(node) == "changes"]

    # -- places -------------------------------------------------------------------------------------------------

    @cached_property
    def _places(self) -> list[ast.Name]:
        body = (node for each in self._function.body for node in ast.walk(each))
        return [node for node in body if isinstance(node, ast.Name) and node.id == self._name]

    def _is_inside(self, node: ast.AST) -> bool:
        """Return whether a place is in code that may run at another time: of a function, or of a generator."""
        for above in self._source.above(node):
            if above is self._function:
                return False
            if isinstance(above, _Inner):
                return True
            if isinstance(above, ast.GeneratorExp) and not is_read_at_once(self._source, above):
                return True
        return True

    def _use(self, node: ast.expr) -> str:
        """Return what is done with it where it is read: "reads", "changes", or "hands on", which is all else."""
        above = self._source.parents[node]
        if isinstance(above, ast.Attribute):
            call = self._source.parents[above]
            if isinstance(call, ast.Call) and call.func is above and above.attr in (*_READING, *_CHANGING):
                return "reads" if above.attr in _READING else "changes"
        elif isinstance(above, ast.Subscript) and above.value is node:
            return "reads" if isinstance(above.ctx, ast.Load) else "changes"
        elif isinstance(above, ast.Compare) and len(above.ops) == 1 and above.left is not node:
            return "reads" if isinstance(above.ops[0], ast.In | ast.NotIn) else "hands on"
        elif isinstance(above, ast.For | ast.comprehension):
            return "reads" if above.iter is node else "hands on"
        elif isinstance(above, ast.If | ast.While | ast.IfExp | ast.Assert):
            return "reads" if above.test is node else "hands on"
        elif isinstance(above, ast.Call):
            return "reads" if self._is_read_by(above, node) else "hands on"
        reads = isinstance(above, ast.UnaryOp | ast.Starred) or self._is_returned(node)
        return "reads" if reads else "hands on"

    def _is_read_by(self, call: ast.Call, node: ast.expr) -> bool:
        if is_read_at_once(self._source, node):
            return True
        above = self._source.parents[call]
        in_turn = isinstance(above, ast.For | ast.comprehension) and above.iter is call
        return in_turn and node in call.args and _is_call_of(self._source, call, _IN_TURN)

    def _is_returned(self, node: ast.expr) -> bool:
        """Return whether nothing more runs in the function once others have it."""
        above = self._source.parents[node]
        above = self._source.parents[above] if isinstance(above, ast.Tuple) else above
        return isinstance(above, ast.Return)

    def _is_later(self, node: ast.AST, start: ast.stmt) -> bool:
        """Return whether a place is reached only after `start`, as long as the variable stands for one list."""
        chain = [node, *self._source.above(node)]
        around = [start, *self._source.above(start)]
        shared = next(each for each in around if each in chain)
        if shared is start or not isinstance(shared, ast.stmt | ast.ExceptHandler | ast.match_case | ast.Module):
            return False
        mine, other = chain[chain.index(shared) - 1], around[around.index(shared) - 1]
        if not isinstance(mine, ast.stmt) or not isinstance(other, ast.stmt):
            return False
        block = block_of(self._source, other)
        if mine not in block or block.index(mine) < block.index(other):
            return False
        return all(self._is_made_anew(each) and not self._is_inside(node) for each in self._repeating(shared))

    def _repeating(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the loops of the function that a statement is or stands in."""
        for each in (node, *self._source.above(node)):
            if each is self._function:
                return
            if isinstance(each, ast.For | ast.While | ast.AsyncFor):
                yield each

    def _is_made_anew(self, loop: ast.AST) -> bool:
        """Return whether each turn of a loop makes another list."""
        return self.value is not None and loop in self._source.above(self.value)


def makes_list(source: SourceFile, value: ast.expr) -> bool:
    """Return whether an expression gives a list or tuple that nobody else holds, or holds strings of its own alone."""
    if isinstance(value, ast.List | ast.ListComp | ast.Tuple):
        return True
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        return makes_list(source, value.left) and isinstance(value.right, ast.Constant)
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.Add) and makes_list(source, value.left) and makes_list(source, value.right)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr in ("split", "splitlines", "rsplit") and _is_text(value.func.value)
    return isinstance(value, ast.Call) and _is_call_of(source, value, _MAKERS)


def is_read_at_once(source: SourceFile, node: ast.expr) -> bool:
    """Return whether a function takes all that an iterable gives before anything else is done, and keeps it not."""
    call = source.parents[node]
    if not isinstance(call, ast.Call) or call.args != [node]:
        return False
    joins = isinstance(call.func, ast.Attribute) and call.func.attr == "join" and _is_text(call.func.value)
    return joins or _is_call_of(source, call, _AT_ONCE)


def is_bound_before(source: SourceFile, statement: ast.stmt, name: str, function: Function | None) -> bool:
    """Return whether a statement above this one, in its block or one around it, binds a name whenever this runs.

    `function`: whose variable it is; None for one of the module.
    """
    node: ast.AST = statement
    while isinstance(node, ast.stmt):
        block = block_of(source, node)
        of_scope = source.scope(node) is (function or source.tree)
        if of_scope and any(ast.unparse(t) == name for each in block[: block.index(node)] for t, _ in pairs(each)):
            return True
        node = source.parents[node]
        node = source.parents[node] if isinstance(node, ast.ExceptHandler | ast.match_case) else node
        if node is function:
            return False
    return False


def _is_call_of(source: SourceFile, call: ast.Call, names: Sequence[str]) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in names and is_of_python(source, call.func.id)


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression gives a string: `"..."`, `" ".join(...)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        node = node.func.value
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
