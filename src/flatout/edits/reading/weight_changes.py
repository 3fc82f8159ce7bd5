"""What may change the weights of a model, or the mode that it computes in, as far as names tell."""

import ast
from collections.abc import Iterable, Iterator

from flatout.edits.reading.in_place import is_in_place
from flatout.edits.reading.project import Project

__all__ = ["changes_weights", "keeps_state"]

_CALLED = {"step", "load_state_dict", "copy_params", "vector_to_parameters", "train", "eval", "apply", "manual_seed"}
_HARMLESS = ("clip_grad", "retain_")  # of gradients alone
_KEEPS = {"append", "appendleft", "add", "extend", "insert", "update", "pop", "clear"}


def changes_weights(project: Project, nodes: Iterable[ast.AST]) -> str:
    """Return what below `nodes`, or in functions of the user's called there, may change weights; "" if nothing."""
    return next(_changing(project, nodes, set()), "")


def _changing(project: Project, nodes: Iterable[ast.AST], seen: set[str]) -> Iterator[str]:
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Attribute) and node.attr == "data":
            yield ast.unparse(node)
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _CALLED or (is_in_place(name) and not name.startswith(_HARMLESS)):
            yield f"{ast.unparse(node.func)}()"
        if name not in seen and name in project.functions:
            seen.add(name)
            yield from _changing(project, (each for _, each in project.functions[name]), seen)


def keeps_state(project: Project) -> str:
    """Return what a `forward` of the user's keeps in its module from call to call; "" if nothing is seen."""
    for _, function in project.functions.get("forward", ()):
        for node in ast.walk(function):
            written = _written(node)
            if written is not None and ast.unparse(written).startswith("self."):
                return ast.unparse(written)
    return ""


def _written(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return node
    method = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    return method.value if method is not None and (method.attr in _KEEPS or is_in_place(method.attr)) else None
