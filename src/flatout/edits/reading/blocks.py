"""The block that a statement stands in, and the names that statements bind and use."""

import ast
from collections.abc import Iterable

from flatout.edits.reading.source_file import SourceFile

__all__ = ["block_of", "bound_as_words", "in_generator", "is_plain", "loads", "stores"]


def block_of(source: SourceFile, statement: ast.stmt) -> list[ast.stmt]:
    """Return the statements among which one stands."""
    above = source.parents[statement]
    return next(each for _, each in ast.iter_fields(above) if isinstance(each, list) and statement in each)


def stores(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are bound, deleted or added to below `nodes`; of attributes and items, what has them."""
    found: set[str] = set()
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(_owner(node))
            found |= {node.attr} if isinstance(node, ast.Attribute) else set()
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found |= {*node.names}
    return found


def bound_as_words(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names below `nodes` that are bound by no node of their own: functions, errors, patterns, imports."""
    found: set[str] = set()
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.MatchMapping):
            found.add(node.rest or "")
        else:
            name = getattr(node, "name", None)
            found |= {name} if isinstance(name, str) else set()
    return found


def loads(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of variables that are read below `nodes`."""
    read = (inner for each in nodes for inner in ast.walk(each) if isinstance(inner, ast.Name))
    return {node.id for node in read if isinstance(node.ctx, ast.Load)}


def in_generator(scope: ast.AST, name: str) -> bool:
    """Return whether a generator below `scope` may read a name whenever it is walked."""
    made = (each for each in ast.walk(scope) if isinstance(each, ast.GeneratorExp))
    return any(name in loads([each.elt, *each.generators[0].ifs, *each.generators[1:]]) for each in made)


def is_plain(node: ast.expr) -> bool:
    """Return whether an expression is a name with attributes, so that it can be written twice."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _owner(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
