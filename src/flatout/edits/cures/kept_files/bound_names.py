"""The names that a block of statements takes from outside, and those that it binds in every case."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from flatout.edits.cures.kept_files.block_kinds import Unkept, not_followed

__all__ = ["BoundNames"]

_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class BoundNames:
    """What is bound and taken, read in the order in which it runs.

    Attributes:
        taken: names that are read before the block binds them, each place.
        bound: names that the block binds in every case.
        maybe: names that it may bind.
    """

    def __init__(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements.

        Raises:
            Unkept: one is of a kind that is not followed, or reads what it may not have bound.
        """
        self.taken: list[ast.Name] = []
        self.bound: set[str] = set()
        self.maybe = {
            each.id
            for statement in statements
            for each in _of_scope(statement)
            if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
        }
        self._followed: Mapping[type[ast.stmt], Callable[..., None]] = {
            ast.Assign: self._assigned,
            ast.AnnAssign: self._assigned,
            ast.AugAssign: self._added,
            ast.With: self._opened,
            ast.For: self._repeated,
            ast.If: self._branched,
            ast.Expr: self._alone,
            ast.Return: self._alone,
            ast.Pass: lambda _: None,
        }
        self._body(statements)

    def _statement(self, node: ast.stmt) -> None:
        follow = self._followed.get(type(node))
        if follow is None:
            raise Unkept(not_followed(node))
        follow(node)

    def _assigned(self, node: ast.Assign | ast.AnnAssign) -> None:
        if node.value is None:
            raise Unkept(not_followed(node))
        self._expression(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._target(target)

    def _added(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id not in self.bound:
            raise Unkept(f"{node.target.id} is changed, and comes from elsewhere")
        self._expression(node.value)
        self._target(node.target)

    def _opened(self, node: ast.With) -> None:
        for item in node.items:
            self._expression(item.context_expr)
            self._target(item.optional_vars)
        self._body(node.body)

    def _repeated(self, node: ast.For) -> None:
        if node.orelse:
            raise Unkept(not_followed(node))
        self._expression(node.iter)
        before = {*self.bound}
        self._target(node.target)
        self._body(node.body)
        self.bound = before

    def _branched(self, node: ast.If) -> None:
        self._expression(node.test)
        before = {*self.bound}
        self._body(node.body)
        first, self.bound = self.bound, before
        self._body(node.orelse)
        self.bound &= first

    def _alone(self, node: ast.Expr | ast.Return) -> None:
        if node.value is None:
            raise Unkept(not_followed(node))
        self._expression(node.value)

    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for each in statements:
            self._statement(each)

    def _target(self, target: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self.bound.add(target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                self._target(each)
        elif isinstance(target, ast.Subscript):
            self._expression(target.value)
            self._expression(target.slice)
        elif target is not None:
            raise Unkept(f"{ast.unparse(target)} is set")

    def _expression(self, node: ast.expr) -> None:
        for name in _loads(node, frozenset()):
            if name.id not in self.bound:
                if name.id in self.maybe:
                    raise Unkept(f"{name.id} may come from before the reading")
                self.taken.append(name)


def _loads(node: ast.AST, own: frozenset[str]) -> Iterator[ast.Name]:
    """Yield the variables that an expression reads, but for those of its own loops."""
    if isinstance(node, ast.Name):
        if node.id not in own:
            yield node
        return
    if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
        raise Unkept(not_followed(node))
    if isinstance(node, _Comprehension):
        yield from _loads_of_loops(node, own)
        return
    if isinstance(node, ast.Lambda):
        own |= {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    for part in ast.iter_child_nodes(node):
        yield from _loads(part, own)


def _loads_of_loops(node: _Comprehension, own: frozenset[str]) -> Iterator[ast.Name]:
    first = node.generators[0]
    yield from _loads(first.iter, own)
    inner = own | {name.id for each in node.generators for name in _names(each.target)}
    for part in [each for each in ast.iter_child_nodes(node) if each is not first] + first.ifs:
        yield from _loads(part, inner)


def _names(target: ast.expr) -> Iterator[ast.Name]:
    yield from (each for each in ast.walk(target) if isinstance(each, ast.Name))


def _of_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node with all below it, but for the loops of comprehensions, whose names are their own."""
    yield node
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.comprehension):
            yield from _of_scope(part.iter)
            for each in part.ifs:
                yield from _of_scope(each)
        else:
            yield from _of_scope(part)
