"""Names that a loop binds: whether anything besides the loop reads them, and what the arguments of functions are."""

import ast

from flatout.edits.reading.blocks import block_of, bound_as_words
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["bound_in", "has_docstring", "is_read_outside", "plain_arguments"]


def is_read_outside(source: SourceFile, loop: ast.For, name: str) -> bool:
    """Return whether code besides a loop may read what the loop leaves in a variable."""
    scope = source.scope(loop)
    if isinstance(scope, ast.ClassDef) or name in bound_as_words([scope]):
        return True
    inside = {*ast.walk(loop)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return True
        if isinstance(node, ast.Name) and node.id == name and node not in inside:
            own = source.scope(node)
            is_of_scope = own is scope
            sees_it = scope in source.above(own) or isinstance(scope, ast.Module)
            if is_of_scope and _reads(source, node) and not _is_bound_anew(source, loop, node):
                return True
            if not is_of_scope and sees_it and not _binds(own, name):
                return True
    return False


def _reads(source: SourceFile, node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Store) or isinstance(source.parents[node], ast.AugAssign)


def _binds(scope: ast.AST, name: str) -> bool:
    """Return whether a function has a variable of its own with that name."""
    return any(isinstance(each, ast.arg) and each.arg == name for each in ast.walk(scope)) or name in bound_in(scope)


def _is_bound_anew(source: SourceFile, loop: ast.For, node: ast.Name) -> bool:
    """Return whether a name that is read has been bound since the loop has run, or before it runs at all."""
    inner: ast.AST = node
    above_loop = {*source.above(loop)}
    repeats = False
    for above in source.above(node):
        if isinstance(above, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            if any(node.id in bound_in(each.target) for each in above.generators):
                return True
        elif isinstance(above, ast.For) and inner in above.body and node.id in bound_in(above.target):
            return above not in above_loop
        if isinstance(inner, ast.stmt) and not isinstance(above, ast.Match | ast.Try) and hasattr(above, "body"):
            block = block_of(source, inner)
            at, own = block.index(inner), next((at for at, each in enumerate(block) if each in {loop, *above_loop}), -1)
            bound = [number for number, each in enumerate(block[:at]) if _is_assignment(each, node.id)]
            if bound:
                return not bound[-1] < own <= at
        repeats |= isinstance(above, ast.For | ast.While | ast.AsyncFor) and above in above_loop
        if isinstance(above, Function | ast.Lambda | ast.ClassDef):
            break
        inner = above
    return node.lineno < loop.lineno and not repeats


def _is_assignment(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)


def bound_in(node: ast.AST) -> set[str]:
    """Return the variables that are bound below a node; what is written into is none of them."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
    return {each.id for each in names if not isinstance(each.ctx, ast.Load)}


def plain_arguments(function: Function) -> list[str] | None:
    """Return the names of the arguments of a function without decorators and defaults, None for others."""
    given = function.args
    rest = [*given.posonlyargs, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg)), *given.defaults]
    if rest or function.decorator_list or isinstance(function, ast.AsyncFunctionDef):
        return None
    return [each.arg for each in given.args]


def has_docstring(function: Function) -> bool:
    """Return whether the first statement of a function is its description."""
    first = function.body[0]
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
