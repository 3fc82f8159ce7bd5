"""Whether a value is made into text as it is: a tensor then shows the name of its graph's last step."""

import ast
import builtins
from collections.abc import Iterator

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["is_printed"]

_PRINTS = frozenset({
    "critical", "debug", "error", "format", "info", "log", "pprint", "print", "repr", "str", "warning", "write",
})  # fmt: skip


def is_printed(project: Project, source: SourceFile, node: ast.AST) -> bool:
    """Return whether an expression is printed: here, by a name that it has, or where its function is called."""
    if _is_shown(source, node):
        return True
    above = source.parents[node]
    names = {each.id for each in getattr(above, "targets", ()) if isinstance(each, ast.Name)}
    scope = source.scope(node)
    named = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id in names]
    if any(_is_shown(source, each) for each in named):
        return True
    is_returned = any(isinstance(_around(source, each), ast.Return) for each in (node, *named))
    return is_returned and isinstance(scope, Function) and any(_printed_calls(project, scope.name))


def _around(source: SourceFile, node: ast.AST) -> ast.AST:
    """Return what a value stands in, tuples left out."""
    above = source.parents[node]
    return _around(source, above) if isinstance(above, ast.Tuple) else above


def _is_shown(source: SourceFile, node: ast.AST) -> bool:
    """Return whether an expression is made into text where it stands."""
    above = source.parents[node]
    if isinstance(above, ast.FormattedValue):
        return True
    if isinstance(above, ast.Tuple | ast.List | ast.Dict):
        return _is_shown(source, above)
    if isinstance(above, ast.BinOp):
        return isinstance(above.left, ast.Constant) and isinstance(above.left.value, str)
    return isinstance(above, ast.Call) and node in above.args and last_name(above.func) in _PRINTS


def _printed_calls(project: Project, function: str) -> Iterator[bool]:
    """Yield for each call that may be one of a function whether what it gives is printed, at once or by a name."""
    for source, call in project.nodes(ast.Call):
        name = last_name(call.func)
        is_module = function in ("forward", "__call__") and not (
            source.names.dotted(call.func)
            or name in project.functions
            or name in project.classes
            or name in dir(builtins)
        )
        if name == function or is_module:
            yield _is_shown(source, call)
            scope = source.scope(call)
            names = {to.id for to, value in pairs(source.parents[call]) if isinstance(to, ast.Name) and value is call}
            named = (each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id in names)
            yield from (_is_shown(source, each) for each in named)
