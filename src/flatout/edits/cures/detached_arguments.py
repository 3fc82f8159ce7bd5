"""The other network's output, detached where it is handed to the network that is trained: `d(fake.detach())`."""

import ast

from flatout.edits.finding_edit import EditPlace
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name, reached_backwards
from flatout.edits.reading.optimizer_steps import owners, steps_after
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.text_changes import TextChanges, operand
from flatout.edits.written_edit import WrittenEdit

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
    changes = TextChanges(place.source)
    for call, argument in found:
        bound = place.source.statement(call)
        if _is_trained_through(place, bound):
            return place.left(f"what {ast.unparse(call)} gives is part of another backward pass, too")
        changes.replace(argument, f"{operand(changes, argument)}.detach()")
    return WrittenEdit(changes.done(place.project), changed=len(found))


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
    if isinstance(node, ast.Call):
        return last_name(node.func) in networks
    if not isinstance(node, ast.Name):
        return False
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
    return isinstance(made, ast.Call) and last_name(made.func) in networks
