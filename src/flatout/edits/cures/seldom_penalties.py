"""A penalty on gradients, computed every eighth time and multiplied by eight: another training, of the same mean."""

import ast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["every_eighth_time"]

_EVERY = 8


def every_eighth_time(place: EditPlace) -> WrittenEdit:
    """Call the function around the finding's line every eighth time alone."""
    function = place.source.scope(place.statement)
    if not isinstance(function, Function):
        return place.left("the penalty is computed in no function of its own")
    if function.name == "forward" or not _returns(place, function):
        return place.left(f"{function.name}() does more than to give back the penalty")
    calls = [each for each in place.project.nodes(ast.Call) if last_name(each[1].func) == function.name]
    if len(calls) != 1:
        return place.left(f"{function.name}() is called at {len(calls)} places")
    ((source, call),) = calls
    if source.scope(call) is function or isinstance(source.parents[call], ast.Expr | ast.Starred | ast.Await):
        return place.left(f"what {function.name}() gives back is not used as one number")
    statement = source.statement(call)
    if isinstance(statement, ast.Assign) and any(isinstance(each, ast.Tuple | ast.List) for each in statement.targets):
        return place.left(f"{function.name}() gives back more than one number")
    changes = TextChanges(source)
    name = fresh_name(source, "penalty_turns")
    text = f"{_EVERY} * {changes.text(call)} if next({name}) % {_EVERY} == 0 else torch.zeros(())"
    changes.replace(call, f"({text})")
    changes.before(_outermost(source, call), f"{name} = itertools.count()")
    at = place.project.sources.index(source)
    project = with_import(changes.done(place.project), at, "torch")
    return WrittenEdit(with_import(project, at, "itertools"), changed=1)


def _returns(place: EditPlace, function: Function) -> bool:
    """Return whether a function gives back one value and makes no backward pass of its own."""
    own = [node for node in ast.walk(function) if place.source.scope(node) is function]
    values = [node.value for node in own if isinstance(node, ast.Return)]
    single = bool(values) and all(each is not None and not isinstance(each, ast.Tuple | ast.List) for each in values)
    steps = {"backward", "step", "zero_grad"}
    calls = {last_name(node.func) for node in own if isinstance(node, ast.Call)}
    yields = any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Await) for node in own)
    return single and not calls & steps and not yields


def _outermost(source: SourceFile, node: ast.AST) -> ast.stmt:
    """Return the statement of the module that a node stands in."""
    return next(each for each in source.above(node) if isinstance(each, ast.stmt) and each in source.tree.body)
