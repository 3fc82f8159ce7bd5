"""What is called where a layer is: the calls that make it, wherever in the project its name is bound."""

import ast
from collections.abc import Iterator

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["makers"]

_SAME = frozenset({"bfloat16", "cpu", "cuda", "double", "eval", "float", "half", "requires_grad_", "to", "train"})
_BY_NAME = frozenset({"add_module", "register_module", "set_submodule", "setattr", "__setattr__", "_modules"})
Made = tuple[SourceFile, ast.Call]


def makers(project: Project, source: SourceFile, node: ast.expr) -> list[Made]:
    """Return the calls that make what a name or an attribute stands for; nothing where it may be something else."""
    if isinstance(node, ast.Subscript):
        return _in_list(project, source, node.value)
    if isinstance(node, ast.Attribute):
        found = _of_attribute(project, node.attr)
    elif isinstance(node, ast.Name):
        found = _of_name(source, node)
    else:
        return []
    calls = [(place, _made(value)) for place, value in found]
    made = [(place, call) for place, call in calls if call is not None]
    return made if len(made) == len(calls) else []


def _in_list(project: Project, source: SourceFile, node: ast.expr) -> list[Made]:
    """Return the calls that make the items of a `ModuleList`; nothing where it may get others."""
    found: list[Made] = []
    for place, call in makers(project, source, node) if not isinstance(node, ast.Subscript) else ():
        given = call.args[0] if len(call.args) == 1 and not call.keywords else None
        items = given.elts if isinstance(given, ast.List | ast.Tuple) else [getattr(given, "elt", None)]
        made = [each for each in items if isinstance(each, ast.Call)]
        if place.names.dotted(call.func) != "torch.nn.ModuleList" or len(made) != len(items):
            return []
        found += [(place, each) for each in made]
    return [] if _is_changed(project, last_name(node)) else found


def _is_changed(project: Project, name: str) -> bool:
    """Return whether something of that name is named for more than its items and length."""
    for source, node in project.nodes(ast.Name, ast.Attribute):
        if last_name(node) != name or not isinstance(node.ctx, ast.Load):
            continue
        above = source.parents[node]
        item = isinstance(above, ast.Subscript) and isinstance(above.ctx, ast.Load)
        if not (item or isinstance(above, ast.For) or (isinstance(above, ast.Call) and last_name(above.func) == "len")):
            return True
    return False


def _made(value: ast.expr) -> ast.Call | None:
    """Return the call behind `nn.Linear(2, 3).to(device)`."""
    while isinstance(value, ast.Call):
        if not (isinstance(value.func, ast.Attribute) and value.func.attr in _SAME):
            return value
        if not isinstance(value.func.value, ast.Call):
            return None
        value = value.func.value
    return None


def _of_attribute(project: Project, name: str) -> list[tuple[SourceFile, ast.expr]]:
    """Return what an attribute of that name is set to, of whatever object; nothing where that cannot be seen."""
    values: list[tuple[SourceFile, ast.expr]] = []
    num_stored = 0
    for source in project.sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr == name and not isinstance(node.ctx, ast.Load):
                num_stored += 1
            if _by_another_way(node, name):
                return []
            values += [(source, value) for target, value in pairs(node) if _is_attribute(target, name)]
    return values if len(values) == num_stored else []


def _is_attribute(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == name


def _by_another_way(node: ast.AST, name: str) -> bool:
    """Return whether a node may bind an attribute of that name without showing it."""
    if isinstance(node, ast.ClassDef):
        return name in {*_bound_in(node)}
    word = getattr(node, "id", None) or getattr(node, "attr", None)
    return isinstance(node, ast.Name | ast.Attribute) and word in _BY_NAME


def _bound_in(body: ast.ClassDef) -> Iterator[str]:
    for each in body.body:
        if isinstance(each, Function | ast.ClassDef):
            yield each.name
        yield from (target.id for target, _ in pairs(each) if isinstance(target, ast.Name))


def _of_name(source: SourceFile, node: ast.Name) -> list[tuple[SourceFile, ast.expr]]:
    """Return what a name is bound to in the innermost scope that binds it; nothing where it is an argument."""
    for scope in (source.scope(node), *source.above(source.scope(node))):
        if not isinstance(scope, Function | ast.Module):
            continue
        inside = [each for each in ast.walk(scope) if source.scope(each) is scope]
        stored = [each for each in inside if isinstance(each, ast.Name) and each.id == node.id]
        stored = [each for each in stored if not isinstance(each.ctx, ast.Load)]
        given = ast.walk(scope.args) if isinstance(scope, Function) else ()
        if any(isinstance(each, ast.arg) and each.arg == node.id for each in given):
            return []
        if stored:
            bound = [value for each in inside for target, value in pairs(each) if target in stored]
            others = (each for each in ast.walk(source.tree) if isinstance(each, ast.Global | ast.Nonlocal))
            is_seen = len(bound) == len(stored) and not any(node.id in each.names for each in others)
            return [(source, value) for value in bound] if is_seen else []
    return []
