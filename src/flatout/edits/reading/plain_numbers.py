"""Expressions that are numbers of Python's, whatever the script is given: no tensors, which may be trained."""

import ast

from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["is_number"]

_MAKERS = ("math.sqrt", "math.log", "math.pow", "numpy.sqrt")
_MOST = 6  # names that are followed, one after the other


def is_number(project: Project, source: SourceFile, node: ast.expr, most: int = _MOST) -> bool:
    """Return whether an expression is a number, as far as its names can be followed."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float)
    if isinstance(node, ast.UnaryOp):
        return is_number(project, source, node.operand, most)
    if isinstance(node, ast.BinOp):
        return all(is_number(project, source, each, most) for each in (node.left, node.right))
    if isinstance(node, ast.Call):
        return _makes_number(source, node)
    if isinstance(node, ast.Subscript):  # x.shape[-1], and what x.size() is taken apart into
        return _is_size(node.value) and not isinstance(node.slice, ast.Slice)
    values = _values(project, source, node) if most else []
    return bool(values) and all(is_number(project, place, each, most - 1) for place, each in values)


def _makes_number(source: SourceFile, call: ast.Call) -> bool:
    if source.names.dotted(call.func) in _MAKERS:
        return True
    if isinstance(call.func, ast.Name):
        return call.func.id in ("float", "int", "len")
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("size", "dim", "numel") and _is_asked(call)


def _is_asked(call: ast.Call) -> bool:
    """Return whether `x.size(1)` is asked for one of its sizes."""
    return bool(call.args) or ast.unparse(call.func).endswith((".dim", ".numel"))


def _is_size(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _values(project: Project, source: SourceFile, node: ast.expr) -> list[tuple[SourceFile, ast.expr]]:
    """Return what a variable of the function, or an attribute of `self`, is bound to; nothing where some is unseen."""
    if isinstance(node, ast.Attribute):
        return attribute_values(project, source, node)
    if not isinstance(node, ast.Name):
        return []
    scope = source.scope(node)
    arguments = ast.walk(scope.args) if isinstance(scope, Function) else ()
    if any(isinstance(each, ast.arg) and each.arg == node.id for each in arguments):
        return []
    stored = [each for each in ast.walk(scope) if isinstance(each, ast.Name) and each.id == node.id]
    bound = [
        (source, value)
        for each in ast.walk(scope)
        for target, value in pairs(each)
        if isinstance(target, ast.Name) and target.id == node.id
    ]
    return bound if len(bound) == sum(isinstance(each.ctx, ast.Store) for each in stored) else []
