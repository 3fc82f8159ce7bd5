"""Lists that a comprehension makes of rows: `torch.stack([f(row) for row in x])`, `[f(row).item() for row in x]`."""

import ast

from flatout.edits.cures.rows.row_loops import RowLoop
from flatout.edits.cures.rows.row_operations import NEW
from flatout.edits.cures.rows.row_results import RowResult, is_single, unwrapped
from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import SourceFile

__all__ = ["ending", "listed", "row_values"]

_TAKERS = ("sum", "max", "min", "list", "tuple", "sorted", "set", "any", "all")
_Simple = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr
_Inner = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda | ast.JoinedStr | ast.NamedExpr


def row_values(source: SourceFile, loop: RowLoop) -> list[RowResult]:
    """Return what a comprehension makes of each row, with the expression that all of them take the place of."""
    node = loop.node
    assert isinstance(node, ast.ListComp | ast.GeneratorExp)
    statement = source.statement(node)
    for each in source.above(node):
        if each is statement:
            break
        if isinstance(each, _Inner):
            return []  # its names are not those of the function
    value, kind = unwrapped(source, node.elt)
    call = source.parents[node]
    if isinstance(call, ast.Call) and source.names.dotted(call.func) == "torch.tensor" and is_single(source, value):
        kind = "item" if name_called(value) in ("argmin", "argmax") else kind  # type: ignore[arg-type]
    into = _taken(source, node, kind) if isinstance(statement, _Simple) else None
    return [RowResult(value, kind, None, into, is_single(source, value))] if into is not None else []


def _taken(source: SourceFile, node: ast.ListComp | ast.GeneratorExp, kind: str) -> ast.expr | None:
    """Return the expression that is written otherwise, None where the rows are used in another way."""
    call = source.parents[node]
    takes = isinstance(call, ast.Call) and len(call.args) == 1 and call.args[0] is node and not call.keywords
    if takes and is_builtin(source, call.func, ("sum",) if kind == "tensor" else _TAKERS):  # type: ignore[attr-defined]
        return node
    if kind != "tensor":
        return node if isinstance(node, ast.ListComp) else None
    is_stack = takes and source.names.dotted(call.func) == "torch.stack"  # type: ignore[attr-defined]
    return call if is_stack and isinstance(node, ast.ListComp) else None  # type: ignore[return-value]


def ending(result: RowResult) -> str:
    """Return what is done to all values, so that they are what the list was, or of memory of their own."""
    if result.kind != "tensor":
        return ".double().tolist()" if result.kind == "float" else ".tolist()"
    return "" if _is_new(result.value) else ".clone()"


def _is_new(node: ast.expr) -> bool:
    """Return whether a value is seen to be new memory, and no part of what it is made of."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        return name_called(node) in NEW
    return isinstance(node, ast.BinOp | ast.Compare)


def listed(text: str) -> str:
    """Return a comprehension as one of a list, where it stands in the brackets of a call."""
    return f"[{text[1:-1]}]" if text.startswith("(") else text
