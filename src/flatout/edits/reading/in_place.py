"""Values that statements change in place, as far as names tell."""

import ast
from collections.abc import Iterable

from flatout.edits.reading.blocks import loads

__all__ = ["changed_in_place", "is_in_place"]

_MODULES = ("torch", "F", "functional", "nn.functional", "torch.nn.functional", "init", "nn.init", "torch.nn.init")


def changed_in_place(nodes: Iterable[ast.AST], name: str) -> bool:
    """Return whether what a name stands for may be changed in place below `nodes`."""
    return any(_changes(inner, name) for each in nodes for inner in ast.walk(each))


def is_in_place(method: str) -> bool:
    """Return whether methods of tensors with that name write into the tensor that they are called on."""
    return method.endswith("_") and not method.endswith("__")


def _changes(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.AugAssign):
        return name in {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return name in loads([node.value])
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr in ("data", "grad") and name in loads([node.value])
    return isinstance(node, ast.Call) and name in loads(_written(node))


def _written(call: ast.Call) -> list[ast.expr]:
    """Return what a call writes into."""
    found = [each.value for each in call.keywords if each.arg == "out"]
    if isinstance(call.func, ast.Attribute) and is_in_place(call.func.attr):
        found += call.args[:1] if ast.unparse(call.func.value) in _MODULES else [call.func.value]
    if any(each.arg == "inplace" and ast.unparse(each.value) == "True" for each in call.keywords):
        found += call.args[:1]
    return found
