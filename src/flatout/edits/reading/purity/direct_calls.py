"""Functions of the user's that nothing but calls by their names can run, with all of these calls."""

import ast
from collections.abc import Iterator

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["direct_calls", "function_called"]

_ENTRIES = frozenset({"forward"})
_Call = tuple[SourceFile, ast.Call]


def direct_calls(project: Project, source: SourceFile, function: ast.AST) -> list[_Call] | None:
    """Return the calls of a function; None where it may run in another way, or may be another one at some of them.

    The function stands in a module or in a class without bases, and is neither decorated nor a generator. Its name is
    bound by nothing else, and is mentioned nowhere but where it is called or imported.
    """
    if not isinstance(function, ast.FunctionDef) or function.decorator_list or _is_special(source, function):
        return None
    around = source.parents[function]
    is_method = isinstance(around, ast.ClassDef)
    if is_method:
        assert isinstance(around, ast.ClassDef)
        is_plain = not (around.bases or around.keywords or around.decorator_list)
        if not is_plain or _is_named_in(around, function.name) or _has_children(project, around.name):
            return None
    elif source.scope(function) is not source.tree or len(project.functions.get(function.name, ())) > 1:
        return None
    found: list[_Call] = []
    for place, node in _mentions(project, function.name):
        is_ours = (is_method or _is_of_module(place, node)) if isinstance(node, ast.Attribute) else not is_method
        call = place.parents[node]
        if is_ours and isinstance(call, ast.Call) and call.func is node and isinstance(node.ctx, ast.Load):
            found.append((place, call))
        elif is_ours or (isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)):
            return None
    if not is_method and any(_is_bound_otherwise(place, function, source) for place in project.sources):
        return None
    return None if _is_looked_up(project, function.name) else found


def function_called(project: Project, source: SourceFile, func: ast.expr) -> tuple[SourceFile, Function] | None:
    """Return the function of a module that a name stands for in a call, None where it may be another one."""
    known = project.functions.get(func.id, ()) if isinstance(func, ast.Name) else ()
    if len(known) != 1 or not isinstance(func, ast.Name):
        return None
    ((place, function),) = known
    if source is not place:
        parts = [place.package] if place.path.stem == "__init__" else [place.package, place.path.stem]
        if source.names.imports.get(func.id) != ".".join(filter(None, [*parts, func.id])):
            return None
    is_seen = place.scope(function) is place.tree and direct_calls(project, place, function) is not None
    return (place, function) if is_seen else None


def _is_special(source: SourceFile, function: ast.FunctionDef) -> bool:
    """Return whether a function is run by Python or torch itself, or bit by bit."""
    if function.name in _ENTRIES or (function.name.startswith("__") and function.name.endswith("__")):
        return True
    of_generator = (ast.Yield, ast.YieldFrom, ast.Await)
    return any(isinstance(node, of_generator) and source.scope(node) is function for node in ast.walk(function))


def _is_named_in(around: ast.ClassDef, name: str) -> bool:
    """Return whether the body of a class does anything with the name of a method but to define it once."""
    defined = [node for node in around.body if getattr(node, "name", None) == name]
    named = [node for node in ast.walk(around) if isinstance(node, ast.Name) and node.id == name]
    return len(defined) != 1 or bool(named)


def _mentions(project: Project, name: str) -> Iterator[tuple[SourceFile, ast.Name | ast.Attribute]]:
    for place, node in project.nodes(ast.Name, ast.Attribute):
        if (node.id if isinstance(node, ast.Name) else node.attr) == name:
            yield place, node


def _has_children(project: Project, name: str) -> bool:
    """Return whether classes are made from one, whose other parents may call its methods."""
    bases = [each for _, node in project.nodes(ast.ClassDef) for each in node.bases]
    return any(name in (getattr(each, "id", ""), getattr(each, "attr", "")) for each in bases)


def _is_of_module(source: SourceFile, node: ast.Attribute) -> bool:
    """Return whether an attribute may be that of a module which the file imports."""
    owner: ast.expr = node
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    aliases = [each for each in ast.walk(source.tree) if isinstance(each, ast.alias)]
    imported = {(each.asname or each.name).partition(".")[0] for each in aliases}
    return isinstance(owner, ast.Name) and owner.id in imported


def _is_looked_up(project: Project, name: str) -> bool:
    """Return whether `getattr(x, "name")`, or a pattern, may find a function."""
    for _, call in project.nodes(ast.Call):
        is_look_up = isinstance(call.func, ast.Name) and call.func.id == "getattr" and len(call.args) > 1
        if is_look_up and isinstance(call.args[1], ast.Constant) and call.args[1].value == name:
            return True
    return any(name in node.kwd_attrs for _, node in project.nodes(ast.MatchClass))


def _is_bound_otherwise(source: SourceFile, function: ast.FunctionDef, home: SourceFile) -> bool:
    """Return whether a name is one of an argument, an import of something else, a class or the like in a file."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.alias):
            bound = (node.asname or node.name).partition(".")[0]
            is_other = bound == function.name and (node.asname is not None or "." in node.name or source is home)
            if is_other or (node.name == function.name and node.asname not in (None, node.name)):
                return True
        elif node is not function and function.name in _bound(node):
            return True
    return False


def _bound(node: ast.AST) -> tuple[str | None, ...]:
    """Return the names that a node binds or shares without naming a variable."""
    if isinstance(node, ast.Global | ast.Nonlocal):
        return (*node.names,)
    return getattr(node, "name", None), getattr(node, "rest", None), node.arg if isinstance(node, ast.arg) else None
