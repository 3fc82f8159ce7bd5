"""Whether statements change tensors in place, or call something that may: what is not known to compute counts so."""

import ast
from collections.abc import Iterable

from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.graphs.kept_graphs import reached_functions
from flatout.edits.reading.graphs.number_uses import KEEPING, TENSOR_METHODS, is_model
from flatout.edits.reading.graphs.recorded_values import ENDING, is_torch_function
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.quiet_code import is_builtin, is_counter, is_own
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.writes.running_sums import is_running_sum

__all__ = ["writes_between"]

_BUILTINS = words(
    "len range zip enumerate reversed list tuple dict set int float bool str max min sum abs isinstance round "
    "print sorted repr format any all"
)
_MODULES = ("math", "time", "random", "numpy")
_METHODS = (
    words("values items keys get format join split info debug warning error write set_postfix set_description "
          "add_scalar scale")
    | TENSOR_METHODS | ENDING | KEEPING - {"update", "put"}
)  # fmt: skip
_TORCH = words("torch.no_grad torch.enable_grad torch.autocast torch.amp.autocast torch.autograd.backward")


def writes_between(project: Project, source: SourceFile, nodes: Iterable[ast.AST]) -> str:
    """Return what below `nodes`, or in functions behind them, may write into tensors; "" where nothing may."""
    nodes = list(nodes)
    found = _writing(project, source, nodes)
    behind = [] if found else reached_functions(project, nodes)
    for place, function in behind:
        if not function.name.startswith("__") or function.name == "__call__":
            found = found or _writing(project, place, function.body)
    return found


def _writing(project: Project, source: SourceFile, nodes: Iterable[ast.AST]) -> str:
    for node in (inner for each in nodes for inner in ast.walk(each)):
        if isinstance(node, ast.Call):
            if not _is_known(project, source, node):
                return f"{ast.unparse(node.func)}()"
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            text = node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else 0
            is_item = isinstance(node, ast.Subscript) and (isinstance(text, str) or is_own(source, node.value))
            if not is_item and not isinstance(source.parents[node], ast.AugAssign):
                return ast.unparse(node)
        elif isinstance(node, ast.AugAssign):
            if not (is_counter(source, node) or is_running_sum(source, node)):
                return ast.unparse(node)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            return ast.unparse(node)
    return ""


def _is_known(project: Project, source: SourceFile, call: ast.Call) -> bool:
    name, dotted = last_name(call.func), source.names.dotted(call.func)
    if any(each.arg in ("out", "inplace", None) for each in call.keywords):
        return False
    if dotted:
        known = dotted.partition(".")[0] in _MODULES or dotted in _TORCH
        return (
            known
            or is_torch_function(source, call.func)
            or (name in project.functions and not dotted.startswith("torch."))
        )
    if is_builtin(source, call.func, _BUILTINS) or name in project.functions:
        return True  # the user's own functions are read by themselves
    return (isinstance(call.func, ast.Attribute) and name in _METHODS) or is_model(project, source, call.func)
