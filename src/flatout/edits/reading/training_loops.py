"""Loops that train, told from those that only look: a pass backward happens in them, or in what they call."""

import ast
from collections.abc import Iterator

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["Loop", "is_without_gradients", "loops", "switches_gradients", "trains"]

Loop = ast.For | ast.AsyncFor | ast.While | ast.comprehension

_NO_GRADIENTS = ("no_grad", "inference_mode")


def loops(project: Project) -> Iterator[tuple[SourceFile, Loop]]:
    """Yield every loop of the project, those inside of expressions, too."""
    yield from project.nodes(ast.For, ast.AsyncFor, ast.While, ast.comprehension)


def trains(project: Project, source: SourceFile, node: ast.AST) -> bool:
    """Return whether what stands below `node`, or a function of the user's that it calls, makes a backward pass."""
    if isinstance(node, ast.comprehension):
        node = source.parents[node]
    return _trains(project, node, set())


def _trains(project: Project, node: ast.AST, seen: set[str]) -> bool:
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == "backward" or (name == "grad" and "autograd" in ast.unparse(call.func)):
            return True
        if name in seen:
            continue
        seen.add(name)
        if any(_trains(project, function, seen) for _, function in project.functions.get(name, ())):
            return True
    return False


def is_without_gradients(source: SourceFile, node: ast.AST) -> bool:
    """Return whether `node` stands where gradients are switched off by a `with` or a decorator."""
    for each in source.above(node):
        if isinstance(each, ast.With) and any(_is_off(item.context_expr) for item in each.items):
            return True
        if isinstance(each, Function):
            return any(_is_off(decorator) for decorator in each.decorator_list)
    return False


def switches_gradients(project: Project) -> str:
    """Return what switches gradients on or off at any line, not for a block alone; "" for nothing."""
    for source, call in project.nodes(ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        entered = name == "__enter__" and any(
            each in ast.unparse(call) for each in (*_NO_GRADIENTS, "enable_grad", "set_grad")
        )
        alone = name.endswith("set_grad_enabled") and not isinstance(source.parents[call], ast.withitem)
        if entered or alone:
            return source.at(call, f"`{ast.unparse(call)}` switches gradients for all that follows")
    return ""


def _is_off(node: ast.expr) -> bool:
    return any(name in ast.unparse(node) for name in _NO_GRADIENTS)
