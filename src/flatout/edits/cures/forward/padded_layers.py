"""Layers and weights by the calls that make them: what computes each position by itself, or attends to no padding."""

import ast

from flatout.edits.reading.called_layers import makers
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile

__all__ = ["BY_POSITION", "OF_ROWS", "is_attention", "is_by_position", "num_dims"]

BY_POSITION = frozenset(
    f"torch.nn.{name}"
    for name in ("ELU", "GELU", "LayerNorm", "LeakyReLU", "Linear", "ReLU", "SiLU", "Sigmoid", "Tanh")
)
OF_ROWS = BY_POSITION | {"torch.nn.BatchNorm1d", "torch.nn.Dropout"}  # what they draw is as long as before
_FILLED = frozenset(f"torch.{name}" for name in ("empty", "ones", "rand", "randn", "zeros"))


def is_by_position(source: SourceFile, call: ast.Call, known: frozenset[str]) -> bool:
    """Return whether a call makes a layer of the known ones, of which none works in place."""
    dotted = source.names.dotted(call.func)
    if dotted == "torch.nn.Sequential":
        parts = [isinstance(each, ast.Call) and is_by_position(source, each, known) for each in call.args]
        return bool(parts) and all(parts) and not call.keywords
    if any(each.arg in (None, "inplace") for each in call.keywords):
        return False
    if dotted == "torch.nn.LayerNorm" and (not call.args or isinstance(call.args[0], ast.Tuple | ast.List)):
        return False
    sized = ("torch.nn.BatchNorm1d", "torch.nn.Dropout", "torch.nn.LayerNorm", "torch.nn.Linear")
    return dotted in known and (dotted in sized or not call.args)


def is_attention(project: Project, source: SourceFile, node: ast.expr) -> bool:
    """Return whether a call, or a name for what it makes, is of an encoder that goes by rows, and drops nothing out."""
    if isinstance(node, ast.Name):
        made = makers(project, source, node)
        return len(made) == 1 and is_attention(project, *made[0])
    if not isinstance(node, ast.Call):
        return False
    dotted = source.names.dotted(node.func)
    named = {each.arg: ast.unparse(each.value) for each in node.keywords}
    if dotted == "torch.nn.TransformerEncoder":
        plain = named.keys() <= {"enable_nested_tensor", "num_layers"} and len(node.args) in (1, 2)
        return plain and is_attention(project, source, node.args[0])
    no_drops = named.get("dropout") in ("0", "0.0") and named.get("batch_first") == "True"
    plain = named.keys() <= {"dropout", "batch_first", "norm_first", "dim_feedforward"} and len(node.args) <= 3
    return dotted == "torch.nn.TransformerEncoderLayer" and no_drops and plain


def num_dims(source: SourceFile, call: ast.Call) -> int:
    """Return how many dimensions a weight has that is made in sight, `nn.Parameter(torch.zeros(1, n, width))`; or 0."""
    if source.names.dotted(call.func) != "torch.nn.Parameter" or len(call.args) != 1 or call.keywords:
        return 0
    made = [each for each in ast.walk(call.args[0]) if isinstance(each, ast.Call)]
    if len(made) != 1 or source.names.dotted(made[0].func) not in _FILLED or made[0].keywords:
        return 0
    sizes = made[0].args
    if len(sizes) == 3 and ast.unparse(sizes[0]) != "1":
        return 0
    return 0 if any(isinstance(each, ast.Starred | ast.Tuple | ast.List) for each in sizes) else len(sizes)
