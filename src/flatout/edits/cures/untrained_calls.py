"""The call of a network that is not trained, put under `torch.no_grad()` where nothing before it is trained."""

import ast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.blocks import is_plain, stores
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.gradient_reads import gradient_hook
from flatout.edits.reading.graphs.joined_uses import JoinedUses
from flatout.edits.reading.graphs.kept_graphs import graphs_kept
from flatout.edits.reading.graphs.recorded_values import may_record
from flatout.edits.reading.graphs.untrained_models import trained_somewhere
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.training_loops import is_without_gradients
from flatout.edits.text_changes import TextChanges
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["without_graph"]

_HANDS_ON = {"to", "cuda", "float", "half", "detach", "view", "flatten", "permute", "unsqueeze", "squeeze"}


def without_graph(place: EditPlace) -> WrittenEdit:
    """Put the call of what no optimizer holds under `torch.no_grad()`."""
    untrained = place.finding.argument("untrained")
    if not isinstance(untrained, str):
        return place.left("what is called here has trained parameters, too: freeze the others by requires_grad_(False)")
    if place.finding.argument("given_gradients") != 0:
        return place.left("gradients go through what is not trained, to what is trained before it")
    hook = gradient_hook(place.project)
    if hook:
        return place.left(f"{hook} may wait for gradients of what is not trained")
    later = _trained_later(place.project)
    if later:
        return place.left(f"{later} may train it later: freeze it by requires_grad_(False) until then")
    found = (place.source, place.statement) if not untrained else _inner(place.project, untrained)
    if found is None:
        return place.left(f"no single line `name = self.{untrained}(x)` gives it what forward() is given")
    source, statement = found
    if is_without_gradients(source, statement):
        return WrittenEdit(place.project, there=1)
    if not _is_call_alone(statement):
        return place.left("the line does more than `name = network(x)`")
    reason = _refused(place, source, statement)
    if reason:
        return place.left(reason)
    changes = TextChanges(source)
    changes.indented(statement, "with torch.no_grad():")
    at = place.project.sources.index(source)
    return WrittenEdit(with_import(changes.done(place.project), at, "torch"), changed=1)


def _refused(place: EditPlace, source: SourceFile, statement: ast.stmt) -> str:
    """Return why a graph may be needed, "" where it cannot."""
    project, call = place.project, _call_of(statement)
    outer = place.statement if source is not place.source or statement is not place.statement else None
    outer_call = _call_of(outer) if outer is not None else None
    if call is None or (outer is not None and outer_call is None):
        return "the line does more than `name = network(x)`"
    trained = trained_somewhere(project, source, call.func)
    if trained:
        return trained
    given = [(source, call)] if outer_call is None else [(place.source, outer_call)]
    for at, each in given:
        for argument in (*each.args, *(one.value for one in each.keywords)):
            if may_record(project, at, argument):
                return f"{ast.unparse(argument)} may have a graph"
    return graphs_kept(project, source, [call]) or JoinedUses(project).seen(source, statement)


def _call_of(statement: ast.stmt | None) -> ast.Call | None:
    value = statement.value if isinstance(statement, ast.Assign) else None
    while isinstance(value, ast.Attribute | ast.Subscript):
        value = value.value
    return value if isinstance(value, ast.Call) else None


def _is_call_alone(statement: ast.stmt) -> bool:
    """Return whether a statement binds what one call gives, and its arguments are made by no other network."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    call = _call_of(statement)
    if call is None or not is_plain(call.func):
        return False
    given = [*call.args, *(each.value for each in call.keywords)]
    inner = [node for each in given for node in ast.walk(each) if isinstance(node, ast.Call)]
    return all(isinstance(each.func, ast.Attribute) and each.func.attr in _HANDS_ON for each in inner)


def _inner(project: Project, name: str) -> tuple[SourceFile, ast.stmt] | None:
    """Return the only line that calls `self.name` in a `forward`, where it is given what `forward` is given."""
    found = []
    for source, node in project.nodes(ast.Call):
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == f"self.{name}":
            found.append((source, node))
    if len(found) != 1:
        return None
    source, call = found[0]
    function, statement = source.scope(call), source.statement(call)
    if not isinstance(function, Function) or function.name != "forward":
        return None
    given = {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    before = [each for each in function.body if each.lineno < statement.lineno]
    arguments = [*call.args, *(each.value for each in call.keywords)]
    named = {node.id for each in arguments for node in ast.walk(each) if isinstance(node, ast.Name)}
    if statement not in function.body or "self" in named or not named <= given - stores(before):
        return None
    return source, statement


def _trained_later(project: Project) -> str:
    """Return what may begin to train more in the course of a training, "" where nothing is seen."""
    for source, node in project.nodes(ast.Call, ast.Assign):
        if isinstance(node, ast.Assign):
            switched = any(isinstance(each, ast.Attribute) and each.attr == "requires_grad" for each in node.targets)
            if switched and not (isinstance(node.value, ast.Constant) and not node.value.value):
                return source.at(node, "requires_grad")
            continue
        name = last_name(node.func)
        false = bool(node.args) and isinstance(node.args[0], ast.Constant) and not node.args[0].value
        if name in ("add_param_group", "grad") or (name == "requires_grad_" and not false):
            return source.at(node, f"{name}()")
        dotted = source.names.dotted(node.func)
        made = dotted.startswith("torch.optim.") and ".lr_scheduler." not in dotted
        if made and any(isinstance(each, ast.For | ast.While | ast.If) for each in source.above(node)):
            return source.at(node, "an optimizer made under a condition")
    return ""
