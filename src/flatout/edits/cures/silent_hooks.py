"""Hooks that only look at gradients, made to return at once: their registration stays, and what they gather is not."""

import ast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit

__all__ = ["without_hooks"]


def without_hooks(place: EditPlace) -> WrittenEdit:
    """Have the hook of the finding look at nothing."""
    found = _hook(place)
    if found is None:
        return place.left("the function that is the hook is not found in the source")
    source, hook = found
    changes = TextChanges(source)
    if isinstance(hook, ast.Lambda):
        changes.replace(hook.body, "None")
        return WrittenEdit(changes.done(place.project), changed=1)
    if any(_gives_back(source, hook, node) for node in ast.walk(hook)):
        return place.left(f"{hook.name}() may give a gradient back")
    first = hook.body[1] if _is_text(hook.body[0]) and len(hook.body) > 1 else hook.body[0]
    if isinstance(first, ast.Return) and first.value is None:
        return WrittenEdit(place.project, there=1)
    changes.before(first, "return")
    return WrittenEdit(changes.done(place.project), changed=1)


def _hook(place: EditPlace) -> tuple[SourceFile, Function | ast.Lambda] | None:
    """Return the function that begins where the recording says that the hook does."""
    file, line = place.finding.argument("file"), place.finding.argument("line")
    source = next((each for each in place.project.sources if str(each.path) == file), None)
    if source is None:
        return None
    found = [node for node in ast.walk(source.tree) if isinstance(node, Function | ast.Lambda) and _first(node) == line]
    return (source, found[0]) if len(found) == 1 else None


def _first(node: Function | ast.Lambda) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min((each.lineno for each in decorators), default=node.lineno)


def _gives_back(source: SourceFile, hook: Function, node: ast.AST) -> bool:
    returns = isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None"
    return (returns or isinstance(node, ast.Yield | ast.YieldFrom)) and source.scope(node) is hook


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
