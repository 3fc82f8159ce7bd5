"""What is computed for a figure alone, without a graph: `torch.no_grad()` around the line or the function."""

import ast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.no_gradients import without_gradients
from flatout.edits.reading.gradient_flow import may_be_trained_on
from flatout.edits.reading.graphs.kept_graphs import read_otherwise
from flatout.edits.reading.project import Project
from flatout.edits.reading.training_loops import is_without_gradients, trains
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["without_recording"]

_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)


def without_recording(place: EditPlace) -> WrittenEdit:
    """Switch gradients off where the finding's line evaluates: in the function that it calls, or for the line."""
    if place.finding.argument("with_grad") == 0 or is_without_gradients(place.source, place.statement):
        return WrittenEdit(place.project, there=1)
    derives = _derives(place.project)
    if derives:
        return place.left(f"{derives} takes a derivative, which needs a graph")
    done = without_gradients(place.project, place.source, place.statement)
    if done.changed or done.there:
        return done
    statement = place.statement
    if not isinstance(statement, _SIMPLE):
        return place.left("this is no line that binds or calls something, nor a loop or function that evaluates")
    if trains(place.project, place.source, statement):
        return place.left("the line makes a backward pass, too")
    if may_be_trained_on(place.project, place.source, statement):
        return place.left("what it computes may come to a backward pass")
    if _is_handed_out(place):
        return place.left("its function returns what it computes")
    otherwise = read_otherwise(place.project, place.source, [statement])
    if otherwise:
        return place.left(otherwise)
    changes = TextChanges(place.source)
    changes.indented(statement, "with torch.no_grad():")
    at = place.project.sources.index(place.source)
    return WrittenEdit(with_import(changes.done(place.project), at, "torch"), changed=1)


def _derives(project: Project) -> str:
    """Return what in a `forward` of the user's takes a derivative, "" if nothing."""
    for source, function in project.functions.get("forward", ()):
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr in ("grad", "backward", "jacrev", "jvp", "vjp"):
                return source.at(node, ast.unparse(node))
    return ""


def _is_handed_out(place: EditPlace) -> bool:
    """Return whether the function around the line returns or yields a name that the line binds."""
    bound = {
        each.id for each in ast.walk(place.statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    scope = place.source.scope(place.statement)
    given = [node for node in ast.walk(scope) if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom)]
    return any(isinstance(each, ast.Name) and each.id in bound for node in given for each in ast.walk(node))
