"""Statements of a block whose results nothing but the body of one branch behind them reads."""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["Assignment", "leaves", "seldom_names"]


@dataclass(frozen=True)
class Assignment:
    """A statement that binds names to a value, and nothing else."""

    statement: ast.Assign | ast.AnnAssign
    binds: frozenset[str]


def leaves(statement: ast.stmt) -> list[Assignment]:
    """Return the assignments that a statement consists of: itself, or what stands in its `with`; none for others."""
    if isinstance(statement, ast.With):
        parts = [leaves(each) for each in statement.body]
        return [leaf for part in parts for leaf in part] if all(parts) else []
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    names = [each for target in targets for each in _names(target)]
    if not names or None in names or len(names) != len(set(names)):
        return []
    assert isinstance(statement, ast.Assign | ast.AnnAssign)
    return [Assignment(statement, frozenset(each for each in names if each is not None))]


def _names(target: ast.expr) -> list[str | None]:
    if isinstance(target, ast.Tuple | ast.List):
        return [each for part in target.elts for each in _names(part)]
    return [target.id] if isinstance(target, ast.Name) else [None]


def seldom_names(
    source: SourceFile, block: Sequence[ast.stmt], branch: ast.If, among: Iterable[ast.stmt] | None = None
) -> list[ast.stmt]:
    """Return the statements before a branch that bind names which its body alone reads, or others of these statements.

    Each name is bound once, and read behind that in the same turn; no other function sees it.

    Args:
        source: the file.
        block: the statements among which the branch stands.
        branch: an `if`.
        among: the statements to choose from; all of the block, where it is left out.
    """
    before = list(block[: block.index(branch)])
    found = [each for each in (before if among is None else among) if leaves(each)]
    scope = source.scope(branch)
    body = {node for each in branch.body for node in ast.walk(each)}
    size = -1
    while size != len(found):
        size = len(found)
        found = [each for each in found if _is_read_by(source, scope, each, found, body)]
    return found


def _is_read_by(
    source: SourceFile, scope: ast.AST, unit: ast.stmt, found: Sequence[ast.stmt], body: set[ast.AST]
) -> bool:
    order = [leaf.statement for each in found for leaf in leaves(each)]
    reads = 0
    for leaf in leaves(unit):
        for name in leaf.binds:
            if _is_bound_otherwise(source, scope, name, leaf.statement):
                return False
            for node in ast.walk(scope):
                if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
                    continue
                reads += 1
                if source.scope(node) is not scope or not _is_behind(source, node, leaf, order, body):
                    return False
    return reads > 0


def _is_behind(
    source: SourceFile, node: ast.Name, leaf: Assignment, order: Sequence[ast.stmt], body: set[ast.AST]
) -> bool:
    """Return whether a name is read in the body of the branch, or in a statement behind the one that binds it."""
    if node in body:
        return True
    reader = source.statement(node)
    return reader in order and order.index(reader) > order.index(leaf.statement)


def _is_bound_otherwise(source: SourceFile, scope: ast.AST, name: str, statement: ast.stmt) -> bool:
    """Return whether a name is bound anywhere else, or is one of another function as well."""
    for node in ast.walk(scope):
        match node:
            case ast.Name(id=found, ctx=ast.Store() | ast.Del()):
                is_other = source.statement(node) is not statement
            case ast.arg(arg=found) | ast.MatchAs(name=found) | ast.MatchStar(name=found):
                is_other = True
            case ast.MatchMapping(rest=found) | ast.ExceptHandler(name=found):
                is_other = True
            case ast.FunctionDef(name=found) | ast.AsyncFunctionDef(name=found) | ast.ClassDef(name=found):
                is_other = node is not scope
            case ast.alias():
                found, is_other = (node.asname or node.name).partition(".")[0], True
            case _:
                continue
        if found == name and is_other:
            return True
    return isinstance(scope, ast.ClassDef) or (isinstance(scope, Function) and scope.name == name)
