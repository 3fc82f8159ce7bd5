"""Which statements of a function make the values that another of its statements needs: a plain reading of the source.

Assignments, loop headers, `with ... as`, and the usual ways to fill a container count as making a name. Reading is by
name within one function; attributes count by their full dotted text. That is coarse, and enough to tell a line that
builds the next batch from a line that writes a log.
"""

import ast
import functools
import linecache
from collections.abc import Iterator

__all__ = ["feeds", "feeds_result", "loops_around", "reads_gradients"]

_FILLING = {"append", "extend", "add", "update", "appendleft", "insert", "copy_", "fill_", "put"}


def feeds(file: str, line: int, goals: frozenset[int]) -> bool:
    """Return whether the statement at `line` makes a value that a statement at one of the lines `goals` needs.

    All lines are of one function; False when the source cannot be read.
    """
    statements = _statements(file)
    if not statements:
        return False
    function = _owner(statements, line)
    inside = [item for item in statements if item.function == function]
    needed: set[str] = set()
    for goal in goals:
        statement = _at(inside, goal)
        if statement is not None:
            needed |= statement.reads
    subject = _at(inside, line)
    if subject is None:
        return False
    feeding: set[int] = set()
    changed = True
    while changed:
        changed = False
        for number, statement in enumerate(inside):
            if number not in feeding and statement.makes & needed:
                feeding.add(number)
                needed |= statement.reads
                changed = True
    return inside.index(subject) in feeding


def feeds_result(file: str, line: int) -> bool:
    """Return whether the statement at `line` may be needed for what its function returns.

    It is not where the function returns values, and the statement neither makes what these are made of nor changes an
    attribute: a metric, a line of log.
    """
    statements = _statements(file)
    subject = _at(statements, line)
    if subject is None:
        return True
    returns = frozenset(
        item.first for item in statements if item.function == subject.function and item.returns and item.reads
    )
    if not returns or subject.returns or any("." in name for name in subject.makes):
        return True
    return feeds(file, line, returns)


def loops_around(file: str, line: int) -> tuple[int, ...]:
    """Return the loops of its function that repeat the statement at `line`, as line numbers, the outermost first.

    The header of a loop is repeated by that loop. Empty when nothing repeats it or the source cannot be read.
    """
    statement = _at(_statements(file), line)
    return statement.loops if statement is not None else ()


def reads_gradients(file: str, line: int) -> bool:
    """Return whether the statement at `line`, or the outermost `with` block around it, uses `.grad`.

    So a parameter update by hand is told from other code: what stands in one `no_grad` block with it belongs to it.
    """
    statement = _at(_statements(file), line)
    if statement is None:
        return False
    block = [
        item for item in _statements(file) if item.function == statement.function and item.block == statement.block
    ]
    return any(name.rpartition(".")[2] == "grad" for item in block for name in item.reads | item.makes)


class _Statement:
    """One simple statement, or the header of a compound one."""

    def __init__(
        self, first: int, last: int, function: int, loops: tuple[int, ...], makes: set[str], reads: set[str]
    ) -> None:
        self.loops = loops
        self.block = 0  # first line of the `with` block it stands in; outside of any, its own line, negative
        self.first = first
        self.last = last
        self.function = function
        self.makes = makes
        self.reads = reads
        self.returns = False


def _at(statements: list[_Statement], line: int) -> _Statement | None:
    holding = [item for item in statements if item.first <= line <= item.last]
    return min(holding, key=lambda item: item.last - item.first, default=None)


def _owner(statements: list[_Statement], line: int) -> int:
    statement = _at(statements, line)
    return statement.function if statement is not None else 0


@functools.lru_cache(maxsize=64)
def _statements(file: str) -> list[_Statement]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    return list(_walk(tree, function=0, loops=()))


def _walk(node: ast.AST, function: int, loops: tuple[int, ...], block: int = 0) -> Iterator[_Statement]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(child, child.lineno, ())
            continue
        repeated = (*loops, child.lineno) if isinstance(child, ast.For | ast.AsyncFor | ast.While) else loops
        inside = block or (child.lineno if isinstance(child, ast.With | ast.AsyncWith) else 0)
        if isinstance(child, ast.stmt) and not isinstance(child, ast.ClassDef):
            statement = _statement(child, function, repeated)
            statement.block = inside or -child.lineno
            yield statement
        yield from _walk(child, function, repeated, inside)


def _statement(node: ast.stmt, function: int, loops: tuple[int, ...]) -> _Statement:
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if body else (node.end_lineno or node.lineno)
    parts = _header(node) if body else [node]
    makes: set[str] = set()
    reads: set[str] = set()
    for part in parts:
        for inner in ast.walk(part):
            _note(inner, makes, reads)
    if isinstance(node, ast.AugAssign):
        reads |= makes
    statement = _Statement(node.lineno, max(node.lineno, last), function, loops, makes, reads - {""})
    statement.returns = isinstance(node, ast.Return) or any(isinstance(each, ast.Yield) for each in ast.walk(node))
    return statement


def _header(node: ast.stmt) -> list[ast.AST]:
    if isinstance(node, ast.For | ast.AsyncFor):
        return [node.target, node.iter]
    if isinstance(node, ast.While | ast.If):
        return [node.test]
    if isinstance(node, ast.With | ast.AsyncWith):
        return list(node.items)
    return []


def _note(node: ast.AST, makes: set[str], reads: set[str]) -> None:
    if isinstance(node, ast.Name | ast.Attribute):
        name = _dotted(node)
        (reads if isinstance(node.ctx, ast.Load) else makes).add(name)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        makes.add(_dotted(node.value))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLING:
        makes.add(_dotted(node.func.value))


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else node.attr
    return _dotted(node.value) if isinstance(node, ast.Subscript) else ""
