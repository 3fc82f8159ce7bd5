"""The code behind a line: the scope that it stands in, and the user's functions that it calls."""

import ast
from collections.abc import Iterator

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile

__all__ = ["called_at", "functions_at", "name_called"]

_DEPTH = 2  # functions within functions that the line calls


def functions_at(project: Project, source: SourceFile, statement: ast.stmt) -> Iterator[tuple[SourceFile, ast.AST]]:
    """Yield the scope that a statement stands in, and the functions that it calls, by their names alone."""
    yield source, source.scope(statement)
    yield from called_at(project, statement)


def called_at(project: Project, statement: ast.stmt) -> Iterator[tuple[SourceFile, ast.AST]]:
    """Yield the functions that a statement calls, and those that these call; a name of several stands for none."""
    todo: list[tuple[ast.AST, int]] = [(statement, 0)]
    seen: set[ast.AST] = set()
    while todo:
        node, depth = todo.pop(0)
        for name in _called(node):
            alike = project.functions.get(name, ())
            for source, function in alike if len(alike) == 1 else ():
                if function not in seen and depth < _DEPTH:
                    seen.add(function)
                    todo.append((function, depth + 1))
                    yield source, function


def name_called(call: ast.Call) -> str:
    """Return the last name of what is called, "" where it has none."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _called(node: ast.AST) -> Iterator[str]:
    yield from (name_called(call) for call in ast.walk(node) if isinstance(call, ast.Call))
