"""Whether what a network gives has a graph in any case: all that its forward returns comes from layers with weights."""

import ast

from flatout.edits.reading.attribute_values import attribute_values
from flatout.edits.reading.dataflow import Flow, pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.number_uses import TENSOR_METHODS
from flatout.edits.reading.graphs.recorded_values import ENDING, is_torch_function
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.training_loops import is_without_gradients

__all__ = ["gives_graph"]

_WEIGHTED = ("Linear", "Bilinear", "Conv", "Embedding", "LSTM", "GRU", "RNN", "Attention", "Transformer")
_MOST = 5


def gives_graph(project: Project, source: SourceFile, network: ast.expr) -> bool:
    """Return whether what a network gives has a graph whenever it is called with gradients on."""
    made = Flow(project).origins(source, network)
    return len(made) == 1 and _makes_graph(project, *made[0], _MOST)


def _makes_graph(project: Project, source: SourceFile, call: ast.Call, most: int) -> bool:
    name, dotted = last_name(call.func), source.names.dotted(call.func)
    if name in project.classes and most:
        return all(_forwards(project, place, made, most) for place, made in project.classes[name])
    if name == "Sequential":
        parts = [each for each in call.args if isinstance(each, ast.Call)]
        return any(_makes_graph(project, source, each, most) for each in parts)
    if dotted.startswith("torch."):
        return dotted.startswith("torch.nn.") and any(each in name for each in _WEIGHTED)
    return bool(dotted)


def _forwards(project: Project, source: SourceFile, made: ast.ClassDef, most: int) -> bool:
    functions = [each for each in made.body if isinstance(each, Function) and each.name == "forward"]
    inherits = any(weighted in ast.unparse(base) for base in made.bases for weighted in _WEIGHTED)
    if not functions:
        return inherits
    returned = [node for each in functions for node in ast.walk(each) if isinstance(node, ast.Return)]
    returned = [node for node in returned if source.scope(node) in functions]
    values = [node.value for node in returned if node.value is not None]
    return (
        bool(values)
        and len(values) == len(returned)
        and all(_has_graph(project, source, each, most) for each in values)
    )


def _has_graph(project: Project, source: SourceFile, node: ast.expr, most: int) -> bool:
    match node:
        case ast.IfExp():
            return all(_has_graph(project, source, each, most) for each in (node.body, node.orelse))
        case ast.BinOp():
            return any(_has_graph(project, source, each, most) for each in (node.left, node.right))
        case ast.Tuple():
            return all(_has_graph(project, source, each, most) for each in node.elts)
        case ast.Subscript():
            return _has_graph(project, source, node.value, most)
        case ast.Call():
            return _call_has_graph(project, source, node, most)
        case ast.Name() if most:
            return _name_has_graph(project, source, node, most - 1)
    return False


def _name_has_graph(project: Project, source: SourceFile, node: ast.Name, most: int) -> bool:
    """Return whether a variable has a graph: all that it is bound to, or what an argument is bound to last."""
    scope = source.scope(node)
    bound = [
        (each, v) for each in ast.walk(scope) for to, v in pairs(each) if isinstance(to, ast.Name) and to.id == node.id
    ]
    if any(isinstance(each, ast.arg) and each.arg == node.id for each in ast.walk(scope)):
        bound = bound[-1:] if bound and bound[-1][0] in getattr(scope, "body", ()) else []
    return bool(bound) and all(_has_graph(project, source, value, most) for _, value in bound)


def _call_has_graph(project: Project, source: SourceFile, call: ast.Call, most: int) -> bool:
    name, dotted = last_name(call.func), source.names.dotted(call.func)
    if is_without_gradients(source, call) or name in ENDING | {"detach", "numpy"}:
        return False
    if isinstance(call.func, ast.Attribute) and not dotted:
        if ast.unparse(call.func.value) in ("super()", "self") and most:
            values = attribute_values(project, source, call.func)
            layers = bool(values) and all(isinstance(each, ast.Call) for _, each in values)
            if layers and all(_makes_graph(project, at, each, most - 1) for at, each in values):  # type: ignore[arg-type]
                return True
            return name == "forward" or any(_has_graph(project, source, each, most) for each in call.args if layers)
        if name in TENSOR_METHODS:
            return _has_graph(project, source, call.func.value, most)
    return is_torch_function(source, call.func) and any(_has_graph(project, source, each, most) for each in call.args)
