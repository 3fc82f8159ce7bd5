"""Statements proven to compute something of plain values and to do nothing else, besides binding their variables.

Errors are no effect: who leaves out the work leaves them out.
"""

import ast
from collections.abc import Sequence

from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.plain_calls import GROWING_METHODS, PlainCalls
from flatout.edits.reading.purity.plain_values import ReadBody, Unproven
from flatout.edits.reading.purity.pure_calls import PlainKind
from flatout.edits.reading.purity.seldom_names import bound_names
from flatout.edits.reading.source_file import SourceFile

__all__ = ["PlainWork"]

NUMBER, OWN, PLAIN = PlainKind
_CONTEXTS = frozenset({"torch.no_grad", "torch.inference_mode", "torch.enable_grad"})
_LOOP = ast.For | ast.While
_LEAVES = ast.Return | ast.Break | ast.Continue
_MOST_ROUNDS = 9


class PlainWork(PlainCalls):
    """The proof for some neighbouring statements of one function.

    Attributes:
        names: all names and attributes that the work mentions.
        changed: the variables that the work binds; `bound`: those that it binds in any case.
        multiplies: whether matrices are multiplied.
    """

    def __init__(self, project: Project, source: SourceFile, run: Sequence[ast.stmt]) -> None:
        """Prove it.

        Raises:
            Unproven: it cannot be proven.
        """
        body = ReadBody(source, set(bound_names(source, run)))
        super().__init__(project, body)
        for _ in range(_MOST_ROUNDS):
            before = self._state()
            body.bound.clear()
            if not self._block(body, run):
                raise Unproven("it may leave the loop")
            if self._state() == before:
                break
        else:
            raise Unproven("the kinds of its variables are not settled")
        self.bound, self.changed = body.bound, body.locals
        inside = [node for each in (*run, *self.reached) for node in ast.walk(each)]
        self.names = {each.id for each in inside if isinstance(each, ast.Name)}
        self.names |= {each.attr for each in inside if isinstance(each, ast.Attribute)}
        self.multiplies = any(isinstance(each, ast.MatMult) for each in inside)

    def _state(self) -> list[object]:
        bodies = (self._home, *self.reached.values())
        return [self._stored, *((dict(each.kinds), each.result) for each in bodies)]

    # -- statements ---------------------------------------------------------------------------------------------

    def _block(self, body: ReadBody, statements: Sequence[ast.stmt]) -> bool:
        """Read statements; return whether what follows them is reached."""
        goes_on, depth = True, self._depth
        for each in statements:
            goes_on &= self._statement(body, each)
            if any(isinstance(node, _LEAVES) for node in ast.walk(each)):  # what follows may be left out
                self._depth = depth + 1
        self._depth = depth
        return goes_on

    def _statement(self, body: ReadBody, node: ast.stmt) -> bool:
        match node:
            case ast.If():
                self._kind(body, node.test)
                return self._either(body, node.body, node.orelse)
            case ast.For(orelse=[]) | ast.While(orelse=[]):
                self._loop(body, node)
            case ast.With():
                return self._with(body, node)
            case ast.Return() if self._calling:
                kind = NUMBER if node.value is None else self._kind(body, node.value)
                body.result = max(body.result, kind)
                return False
            case ast.Continue() | ast.Break() if self._in_loop(body, node):
                return False
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                self._simple(body, node)
        return True

    def _simple(self, body: ReadBody, node: ast.stmt) -> None:
        """Read a statement that binds or changes something."""
        match node:
            case ast.Assign() if len(node.targets) == 1:
                self._bind(body, node.targets[0], self._value(body, node.value), node.value)
            case ast.AnnAssign(value=ast.expr() as value) if node.simple:
                self._bind(body, node.target, self._value(body, value), value)
            case ast.AugAssign():
                self._add(body, node)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)) as call) if name in GROWING_METHODS:
                self._kind(body, call)
            case _:
                raise Unproven(f"`{ast.unparse(node).splitlines()[0]}` may do more than to compute")

    def _with(self, body: ReadBody, node: ast.With) -> bool:
        for item in node.items:
            call = item.context_expr
            is_plain = isinstance(call, ast.Call) and not (call.args or call.keywords or item.optional_vars)
            dotted = body.source.names.dotted(call.func) if isinstance(call, ast.Call) else ""
            if not is_plain or dotted not in _CONTEXTS:
                raise Unproven(f"with {ast.unparse(item)}")
        return self._block(body, node.body)

    def _in_loop(self, body: ReadBody, node: ast.stmt) -> bool:
        """Return whether `continue` or `break` belongs to a loop that is read here."""
        loop = next(each for each in body.source.above(node) if isinstance(each, _LOOP | ast.AsyncFor))
        return loop in self._loops

    def _loop(self, body: ReadBody, node: _LOOP) -> None:
        bound, loops = set(body.bound), self._loops
        items = self._items(body, node.iter) if isinstance(node, ast.For) else self._kind(body, node.test)
        self._loops, self._depth = loops | {node}, self._depth + 1
        if isinstance(node, ast.For):
            self._bind_items(body, node.target, items)
        self._block(body, node.body)
        self._loops, self._depth = loops, self._depth - 1
        body.bound = bound

    def _either(self, body: ReadBody, first: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> bool:
        ends: list[set[str]] = []
        before = set(body.bound)
        self._depth += 1
        for part in (first, other):
            body.bound = set(before)
            if self._block(body, part):
                ends.append(body.bound)
        self._depth -= 1
        body.bound = set.intersection(*ends) if ends else before
        return bool(ends)

    def _add(self, body: ReadBody, node: ast.AugAssign) -> None:
        """Read `total += x`: in place, where that is nobody else's."""
        target = node.target
        owner = target.value if isinstance(target, ast.Subscript) else target
        if isinstance(target, ast.Attribute) or self._kind(body, owner) > OWN:
            raise Unproven(f"{ast.unparse(target)} may be changed in place for others")
        if isinstance(target, ast.Subscript):
            self._index(body, target.slice)
            if self._stored > OWN:
                raise Unproven(f"{ast.unparse(target)} may be changed in place for others")
        kind = self._kind(body, node.value)
        if kind != NUMBER and isinstance(node.op, ast.Add | ast.BitOr):  # a list takes the items
            self._store(kind)
        if isinstance(target, ast.Name):
            self._set(body, target.id, OWN if kind != NUMBER else NUMBER)
