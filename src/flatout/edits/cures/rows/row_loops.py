"""Loops of Python over rows: `range(len(x))`, `for row in x`, `enumerate(x)`, `zip(x, y)`."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from flatout.edits.reading.blocks import is_plain, loads
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import SourceFile

__all__ = ["RowLoop", "is_length_of", "is_one_long", "row_loops"]


RowNode = ast.For | ast.ListComp | ast.GeneratorExp


@dataclass(frozen=True)
class RowLoop:
    """A loop whose turns are numbered, or have rows with names of their own.

    Attributes:
        node: the statement, or the comprehension.
        index: what the number of the turn is called, "" where it has no name.
        rows: the variables of the loop that stand for rows, with what these are rows of.
        count: the number of turns, of a loop over a range.
    """

    node: RowNode
    index: str
    rows: Mapping[str, ast.expr]
    count: ast.expr | None = None

    @property
    def over(self) -> ast.expr:
        """What the loop goes over."""
        return self.node.iter if isinstance(self.node, ast.For) else self.node.generators[0].iter

    @property
    def variables(self) -> set[str]:
        """The names that the loop binds in each turn, besides those of its body."""
        return {*self.rows, *([self.index] if self.index else [])}


def row_loops(source: SourceFile, scope: ast.AST) -> Iterator[RowLoop]:
    """Yield the loops and comprehensions of a function or module that may go over rows."""
    for node in ast.walk(scope):
        found = None
        if source.scope(node) is scope and isinstance(node, ast.For) and not node.orelse:
            found = _read(source, node, node.target, node.iter)
        elif source.scope(node) is scope and isinstance(node, ast.ListComp | ast.GeneratorExp):
            first = node.generators[0]
            if len(node.generators) == 1 and not first.ifs and not first.is_async:
                found = _read(source, node, first.target, first.iter)
        if found is not None:
            yield found


def _read(source: SourceFile, node: RowNode, target: ast.expr, over: ast.expr) -> RowLoop | None:
    count = _given_to(source, over, "range")
    if count is not None:
        is_known = len(count) == 1 and isinstance(target, ast.Name) and _is_count(count[0])
        is_known = is_known and target.id not in loads(count)  # type: ignore[attr-defined]
        return RowLoop(node, target.id, {}, count[0]) if is_known else None  # type: ignore[attr-defined]
    index, numbered = "", _given_to(source, over, "enumerate")
    if numbered is not None:
        pair = target.elts if isinstance(target, ast.Tuple) else []
        if len(numbered) != 1 or len(pair) != 2 or not isinstance(pair[0], ast.Name):
            return None
        index, target, over = pair[0].id, pair[1], numbered[0]
    zipped = _given_to(source, over, "zip")
    if zipped is None:
        names, wholes = [target], [over]
    else:
        names, wholes = (target.elts if isinstance(target, ast.Tuple) else []), zipped
    if len(names) != len(wholes) or not all(isinstance(each, ast.Name) for each in names):
        return None
    rows = {each.id: whole for each, whole in zip(names, wholes, strict=True) if isinstance(each, ast.Name)}
    is_known = len(rows) == len(names) == len({*map(ast.unparse, wholes)}) > 0 and index not in rows
    is_known = is_known and all(map(is_plain, wholes)) and not {index, *rows} & loads([over])  # for x in x
    return RowLoop(node, index, rows) if is_known else None


def _given_to(source: SourceFile, node: ast.expr, name: str) -> list[ast.expr] | None:
    """Return what a function of Python's is called with, None for anything else."""
    is_call = isinstance(node, ast.Call) and is_builtin(source, node.func, (name,))
    if not is_call or node.keywords or any(isinstance(each, ast.Starred) for each in node.args):  # type: ignore[attr-defined]
        return None
    return node.args  # type: ignore[attr-defined, no-any-return]


def _is_count(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.Call):
        given = node.args[0] if len(node.args) == 1 else node
        return (is_plain(given) and is_length_of(node, ast.unparse(given))) or _is_method(node)
    if isinstance(node, ast.Subscript):  # x.shape[0]
        whole = node.value
        return is_plain(whole) and is_length_of(node, ast.unparse(whole).removesuffix(".shape"))
    return is_plain(node)


def _is_method(node: ast.Call) -> bool:
    func = node.func
    return isinstance(func, ast.Attribute) and is_plain(func.value) and is_length_of(node, ast.unparse(func.value))


def is_length_of(node: ast.expr, whole: str) -> bool:
    """Return whether an expression is the number of rows of what is called `whole`."""
    return ast.unparse(node) in (f"len({whole})", f"{whole}.shape[0]", f"{whole}.size(0)", f"{whole}.size()[0]")


def is_one_long(part: ast.Slice, index: str) -> bool:
    """Return whether a slice is `i : i + 1`, of the loop's `i`."""
    end = part.upper
    is_next = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add) and getattr(end.left, "id", "") == index
    one = end.right if is_next else None  # type: ignore[union-attr]
    is_from = getattr(part.lower, "id", "") == index and part.step is None and bool(index)
    return is_from and isinstance(one, ast.Constant) and one.value == 1
