"""The other network's output, detached where it is handed to the network that is trained: `d(fake.detach())`."""

import ast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name, reached_backwards
from flatout.edits.reading.graphs.apart_networks import are_apart
from flatout.edits.reading.graphs.discarded_gradients import missed_gradients
from flatout.edits.reading.graphs.kept_graphs import asks_for_graph, reached_functions
from flatout.edits.reading.optimizer_steps import owners, steps_after
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.weight_changes import keeps_state
from flatout.edits.reading.writes.changed_meanings import traced_somewhere
from flatout.edits.text_changes import TextChanges, fresh_name
from flatout.edits.written_edit import WrittenEdit, with_import

__all__ = ["with_detached_arguments"]


def with_detached_arguments(place: EditPlace) -> WrittenEdit:
    """Detach what other networks give to the one that steps after the backward pass of the finding."""
    call = place.statement.value if isinstance(place.statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or last_name(call.func) != "backward":
        return place.left("this line is not loss.backward() alone")
    steps = steps_after(place.project, place.source, place.statement)
    trained = owners(place.project, place.source, steps or ())
    if not trained:
        return place.left("which network this backward pass trains cannot be told from the source")
    others = _networks(place.project) - trained
    found = _arguments(place, trained, others)
    if not found:
        return place.left(
            f"no call of {' or '.join(sorted(trained))} is given what another network made in this function"
        )
    reason = missed_gradients(place.project, place.source, place.statement, steps or []) or _kept(place, found)
    if reason:
        return place.left(reason)
    changes = TextChanges(place.source)
    for call, argument in found:
        bound = place.source.statement(call)
        if _is_trained_through(place, bound):
            return place.left(f"what {ast.unparse(call)} gives is part of another backward pass, too")
        name = changes.text(argument) if isinstance(argument, ast.Name) else fresh_name(place.source, "made")
        tested = name if isinstance(argument, ast.Name) else f"{name} := {changes.text(argument)}"
        text = f"{name}.detach() if isinstance({tested}, torch.Tensor) else {name}"
        changes.replace(argument, text if len(call.args) + len(call.keywords) == 1 else f"({text})")
    at = place.project.sources.index(place.source)
    return WrittenEdit(with_import(changes.done(place.project), at, "torch"), changed=len(found))


def _kept(place: EditPlace, found: list[tuple[ast.Call, ast.expr]]) -> str:
    """Return why what is called may need the graph of its argument, or be a part of what made it; "" if it is apart."""
    kept = keeps_state(place.project)
    traced = traced_somewhere(place.project)
    if traced:
        return traced
    if kept:
        return f"forward() keeps {kept}, which may be trained on"
    if any(each in place.project.mentions for each in ("add_param_group", "['params']")):
        return "an optimizer may be given more parameters"
    for call, argument in found:
        maker = _maker(place.source, place.source.scope(place.statement), argument, call)
        if maker is None or not are_apart(place.project, (place.source, call.func), (place.source, maker)):
            return f"{ast.unparse(call.func)} and what made its argument may be one network, or parts of each other"
        for source, function in reached_functions(place.project, [call.func]):
            asked = asks_for_graph(source, [function])
            if asked and function.name != "__init__":
                return source.at(function, f"{function.name}() asks for gradients ({asked})")
    return ""


def _networks(project: Project) -> set[str]:
    """Return the last names of everything whose parameters an optimizer of the project is given."""
    found: set[str] = set()
    for _, call in project.nodes(ast.Call):
        if last_name(call.func) in ("parameters", "named_parameters") and isinstance(call.func, ast.Attribute):
            found.add(last_name(call.func.value))
    return found - {""}


def _arguments(place: EditPlace, trained: set[str], others: set[str]) -> list[tuple[ast.Call, ast.expr]]:
    """Return the calls of what is trained that lead to the loss, each with an argument that another network made."""
    scope, source = place.source.scope(place.statement), place.source
    calls = [node for node in ast.walk(scope) if isinstance(node, ast.Call) and source.scope(node) is scope]
    found = []
    for call in calls:
        if last_name(call.func) in trained and place.statement in _led_to(place, call):
            found += [(call, each) for each in call.args if _made_by(source, scope, each, call, others)]
    return found


def _led_to(place: EditPlace, call: ast.Call) -> set[ast.stmt]:
    """Return the statements whose backward passes what `call` gives is part of."""
    bound = place.source.statement(call)
    reached = reached_backwards(place.source, bound)
    return {place.source.statement(each) for each in reached} | ({bound} if bound is place.statement else set())


def _is_trained_through(place: EditPlace, bound: ast.stmt) -> bool:
    return bool({place.source.statement(each) for each in reached_backwards(place.source, bound)} - {place.statement})


def _made_by(source: SourceFile, scope: ast.AST, node: ast.expr, call: ast.Call, networks: set[str]) -> bool:
    """Return whether one of `networks` made the value of an argument, in the last statement above that binds it."""
    maker = _maker(source, scope, node, call)
    return maker is not None and last_name(maker) in networks


def _maker(source: SourceFile, scope: ast.AST, node: ast.expr, call: ast.Call) -> ast.expr | None:
    """Return what was called to make the value of an argument, None where no call made it."""
    if isinstance(node, ast.Call):
        return node.func
    if not isinstance(node, ast.Name):
        return None
    bound = [
        (each.lineno, value)
        for each in ast.walk(scope)
        if source.scope(each) is scope and isinstance(each, ast.stmt) and each.lineno < call.lineno
        for target, value in pairs(each)
        if isinstance(target, ast.Name) and target.id == node.id
    ]
    made = max(bound, key=lambda each: each[0])[1] if bound else None
    while isinstance(made, ast.Subscript):  # fake, _ = generator(z)
        made = made.value
    return made.func if isinstance(made, ast.Call) else None
