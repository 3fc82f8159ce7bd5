"""Modules that are printed, formatted or saved whole, so that how they are made is seen."""

import ast
from collections.abc import Iterator

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["modules_shown"]

_TAKING = words("list tuple len isinstance iter enumerate zip reversed super hasattr getattr deepcopy append extend id")
_WALKS = ("modules", "children", "named_modules", "named_children")


def modules_shown(project: Project) -> str:
    """Return where a module is handed to what may show it as text, or write it to a file; "" for nowhere."""
    names = _names_of_modules(project)
    for source, node in project.nodes(ast.Name, ast.Attribute, ast.Subscript, ast.Call):
        is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
        if is_read and _is_module(project, source, node, names) and _is_shown(project, source, node):
            return source.at(node, f"{ast.unparse(node)} may be shown as a text, or saved whole")
    return ""


def _names_of_modules(project: Project) -> set[str]:
    """Return the names that stand for modules: made by classes, parts of them, or names for these."""
    found, size = {"self"}, -1
    while size != len(found):
        size = len(found)
        for source in project.sources:
            for node in ast.walk(source.tree):
                for target, value in _bound(project, node):
                    if _is_module(project, source, value, found):
                        targets = target.elts if isinstance(target, ast.Tuple) else [target]
                        found |= {last_name(each) for each in targets} - {""}
    return found


def _bound(project: Project, node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what a node binds: by assignments, loops, and arguments of the user's functions."""
    yield from pairs(node)
    if isinstance(node, ast.For | ast.comprehension):
        yield node.target, node.iter
    if not isinstance(node, ast.Call):
        return
    if last_name(node.func) == "apply" and isinstance(node.func, ast.Attribute):
        yield from ((ast.Name(name), node.func.value) for each in node.args for name in _arguments(project, each)[:1])
    names = _arguments(project, node.func)
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    yield from ((ast.Name(name), value) for name, value in zip(names, node.args, strict=False))
    yield from ((ast.Name(each.arg), each.value) for each in node.keywords if each.arg in names)


def _arguments(project: Project, node: ast.expr) -> list[str]:
    """Return the names of the arguments of a function that is the user's."""
    if isinstance(node, ast.Lambda):
        return [each.arg for each in node.args.args]
    known = [function for _, function in project.functions.get(last_name(node), ())]
    known += [
        each for _, made in project.classes.get(last_name(node), ()) for each in made.body if isinstance(each, Function)
    ]
    return [each.arg for function in known for each in (*function.args.posonlyargs, *function.args.args)]


def _is_module(project: Project, source: SourceFile, value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.Name | ast.Attribute):
        return last_name(value) in names
    if isinstance(value, ast.Subscript):
        return _is_module(project, source, value.value, names)
    if isinstance(value, ast.List | ast.Tuple):
        return any(_is_module(project, source, each, names) for each in value.elts)
    if not isinstance(value, ast.Call):
        return False
    name, dotted = last_name(value.func), source.names.dotted(value.func)
    made = name in project.classes or (dotted.startswith("torch.nn.") and name[:1].isupper())
    handed_on = isinstance(value.func, ast.Attribute) and name in ("to", "cuda", "cpu", "train", "eval", *_WALKS)
    return made or (handed_on and _is_module(project, source, value.func.value, names))  # type: ignore[attr-defined]


def _is_shown(project: Project, source: SourceFile, node: ast.expr) -> bool:
    above = source.parents[node]
    if isinstance(above, ast.FormattedValue | ast.JoinedStr | ast.Yield | ast.Raise):
        return last_name(node) != "self"
    if isinstance(above, ast.Assert):
        return node is above.msg
    if isinstance(above, ast.BinOp):
        return isinstance(above.op, ast.Mod | ast.Add) and isinstance(above.left, ast.Constant | ast.JoinedStr)
    if isinstance(above, ast.Tuple | ast.List | ast.Dict | ast.Starred | ast.keyword):
        return (
            _is_shown(project, source, above) if isinstance(above, ast.expr) else _is_shown_by(project, source, above)
        )
    return isinstance(above, ast.Call) and node is not above.func and _shows(project, source, above)


def _is_shown_by(project: Project, source: SourceFile, keyword: ast.keyword) -> bool:
    call = source.parents[keyword]
    return isinstance(call, ast.Call) and _shows(project, source, call)


def _shows(project: Project, source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call may show what it is given, or save it."""
    name, dotted = last_name(call.func), source.names.dotted(call.func)
    if name in project.functions or name in project.classes or name in _TAKING:
        return False
    return not dotted.startswith(("torch.nn.", "torch.optim."))
