"""The loops of one function: its names, where they have a value, and where they keep it."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from flatout.edits.reading.blocks import block_of, bound_as_words
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["Loop", "LoopsOf", "calls_builtin"]

Loop = ast.For | ast.comprehension
_CONSUMERS = ("all", "any", "list", "max", "min", "set", "sorted", "sum", "tuple")


@dataclass(frozen=True)
class LoopsOf:
    """A function whose loops are read, or another part of a file that binds names."""

    project: Project
    source: SourceFile
    scope: ast.AST

    @cached_property
    def named(self) -> dict[str, list[ast.Name]]:
        """Where each name stands."""
        found: dict[str, list[ast.Name]] = {}
        for node in ast.walk(self.scope):
            if isinstance(node, ast.Name):
                found.setdefault(node.id, []).append(node)
        return found

    @cached_property
    def arguments(self) -> set[str]:
        """The names of its arguments."""
        given = ast.walk(self.scope.args) if isinstance(self.scope, Function) else ()
        return {each.arg for each in given if isinstance(each, ast.arg)}

    @cached_property
    def unfollowed(self) -> set[str]:
        """Names that are bound elsewhere, too, or in ways that no assignment shows."""
        inside = [*ast.walk(self.scope)]
        found = bound_as_words(ast.iter_child_nodes(self.scope))
        found |= {name for each in inside if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
        found |= {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Del)}
        inner = (each for each in inside if isinstance(each, ast.arg))
        return found | ({each.arg for each in inner} - self.arguments)

    def stored(self, name: str) -> list[ast.Name]:
        """Return where a name is bound."""
        return [each for each in self.named.get(name, ()) if not isinstance(each.ctx, ast.Load)]

    def bound(self, name: str) -> list[ast.expr]:
        """Return what a name is bound to by assignments."""
        found = (pair for node in ast.walk(self.scope) for pair in pairs(node))
        return [value for target, value in found if isinstance(target, ast.Name) and target.id == name]

    def keeps(self, name: str, statement: ast.stmt) -> bool:
        """Return whether a name has a value where a statement begins, and the same one all the time until it ends."""
        if name in self.unfollowed or {*ast.walk(statement)} & {*self.stored(name)}:
            return False
        return name in self.arguments or any(self._binds(each, name) for each in self._before(statement))

    def outermost(self, node: ast.AST) -> ast.stmt | None:
        """Return the statement that the outermost loop around a node is, or is part of; None without one.

        None, too, where the node is not run at once: in functions within, and generators that are kept; and in
        f-strings, whose parts Python before 3.12 places wrongly.
        """
        found: ast.stmt | None = None
        inner = node
        for above in self.source.above(node):
            if above is self.scope:
                return None if found is self.scope else found
            if isinstance(above, Function | ast.Lambda | ast.ClassDef | ast.JoinedStr):
                return None
            if isinstance(above, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
                if isinstance(above, ast.GeneratorExp) and not self._is_consumed(above):
                    return None
                first = above.generators[0]
                found = found if inner is first and node in ast.walk(first.iter) else self.source.statement(above)
            elif isinstance(above, ast.For | ast.While):
                found = above if inner in above.body or isinstance(above, ast.While) else found
            inner = above
        return None

    def _is_consumed(self, made: ast.GeneratorExp) -> bool:
        """Return whether a generator is run through where it stands: by `sum` or `list`."""
        above = self.source.parents[made]
        return isinstance(above, ast.Call) and above.args == [made] and calls_builtin(self.source, above, _CONSUMERS)

    def _before(self, statement: ast.stmt) -> Iterable[ast.stmt]:
        """Yield the statements that have surely run before one."""
        for each in (statement, *self.source.above(statement)):
            if each is self.scope:
                return
            if isinstance(each, ast.stmt):
                block = block_of(self.source, each)
                yield from block[: block.index(each)]

    def _binds(self, statement: ast.stmt, name: str) -> bool:
        stored = {*self.stored(name)}
        return isinstance(statement, ast.Assign) and any(stored & {*ast.walk(each)} for each in statement.targets)


def calls_builtin(source: SourceFile, node: ast.AST, names: Iterable[str]) -> bool:
    """Return whether a node calls one of these functions of Python's, which nothing in the file replaces."""
    if not isinstance(node, ast.Call) or not is_builtin(source, node.func, tuple(names)):
        return False
    return isinstance(node.func, ast.Name) and node.func.id not in bound_as_words([source.tree])
