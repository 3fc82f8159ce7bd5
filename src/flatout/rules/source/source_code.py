"""Read the user's source around a place: the statement, the function, the loops. It is only parsed, never run.

The file may be gone, changed or unreadable when a recording is analyzed: every answer may be None.
"""

import ast
import functools
import os
import re
import stat
from collections.abc import Iterator

from flatout.schema.run import Frame

__all__ = [
    "Function",
    "ancestors",
    "enclosing_function",
    "expressions",
    "module_value",
    "named_in_calls",
    "parsed",
    "statement",
    "statement_node",
]

MAX_BYTES = 2_000_000  # larger files are generated, and parsing them would take seconds

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def statement(frame: Frame) -> str | None:
    """Return the text of the statement at `frame`, on one line."""
    node = statement_node(frame)
    return None if node is None else " ".join(ast.unparse(_head(node)).split())


def statement_node(frame: Frame) -> ast.stmt | None:
    """Return the innermost statement that covers the line of `frame`."""
    return next((node for node in ancestors(frame) if isinstance(node, ast.stmt)), None)


def enclosing_function(frame: Frame) -> Function | None:
    """Return the definition of the function that the line of `frame` belongs to."""
    return next((node for node in ancestors(frame) if isinstance(node, Function)), None)


def ancestors(frame: Frame) -> tuple[ast.AST, ...]:
    """Return the statements and functions that cover the line of `frame`, innermost first; empty when unreadable."""
    tree = parsed(frame.file)
    return () if tree is None else tuple(reversed(list(_covering(tree, frame.line))))


def expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the expressions that a statement evaluates itself: of a compound statement only those of its head."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.withitem):
            yield child.context_expr


def module_value(frame: Frame, name: str) -> ast.expr | None:
    """Return what the file of `frame` assigns to `name`, once and outside of functions; None otherwise."""
    tree = parsed(frame.file)
    found: list[ast.expr] = []
    assignments = (node for node in (tree.body if tree else ()) if isinstance(node, ast.Assign))
    for node in assignments:
        for target in node.targets:
            found.extend(_paired(target, node.value, name))
    return found[0] if len(found) == 1 else None


def named_in_calls(file: str, method: re.Pattern[str]) -> frozenset[str]:
    """Return the names that stand in the arguments of calls `x.method(...)` in a file, of functions and of methods."""
    tree = parsed(file)
    return frozenset() if tree is None else frozenset(_names_in_calls(tree, method))


@functools.lru_cache(maxsize=64)
def _names_in_calls(tree: ast.Module, method: re.Pattern[str]) -> tuple[str, ...]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    given = [part for call in calls if method.fullmatch(call.func.attr) for part in call.args]  # type: ignore[attr-defined]
    named = (node for part in given for node in ast.walk(part))
    return tuple(getattr(node, "id", "") or getattr(node, "attr", "") for node in named if _is_name(node))


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _paired(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    """Yield what `name` gets in `target = value`; tuples are matched element by element."""
    if isinstance(target, ast.Name) and target.id == name:
        yield value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for each, part in zip(target.elts, value.elts, strict=True):
            yield from _paired(each, part, name)


def _covering(node: ast.AST, line: int) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
        if first is None:
            yield from _covering(child, line)  # match cases and the like carry no line of their own
        elif first <= line <= (last or first):
            if isinstance(child, ast.stmt | Function):
                yield child
            yield from _covering(child, line)


def _head(node: ast.stmt) -> ast.AST:
    """Return the statement, or the expression in its head when it has a body of its own."""
    if not hasattr(node, "body"):
        return node
    return next(expressions(node), ast.Pass())


def parsed(path: str) -> ast.Module | None:
    """Return the tree of a file, None where it cannot be read or is no Python."""
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(facts.st_mode):
        return None
    return _parse(path, facts.st_mtime_ns, facts.st_size)


@functools.lru_cache(maxsize=64)
def _parse(path: str, modified_ns: int, num_bytes: int) -> ast.Module | None:
    """Parse one version of a file; versions are told apart by modification time and size."""
    if num_bytes > MAX_BYTES:
        return None
    try:
        with open(path, "rb") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
