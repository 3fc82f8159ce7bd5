"""Expressions whose values may have a graph, which they lack under `torch.no_grad()`; numbers and indices have none."""

import ast
from collections.abc import Iterable, Iterator

from flatout.edits.reading.dataflow import Flow, pairs
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import PURE_FUNCTIONS, PURE_METHODS, words
from flatout.edits.reading.quiet_code import COMPUTING, SAME_VALUES, is_builtin
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = [
    "ENDING",
    "WITHOUT_GRAPH",
    "is_indices",
    "is_ranked",
    "is_torch_function",
    "may_record",
    "recording",
]

ENDING = words(
    "item tolist argmax argmin argsort size dim numel nelement eq ne lt le gt ge equal allclose isclose long int bool "
    "detach all any isnan isinf isfinite logical_not logical_and logical_or logical_xor nonzero bincount "
    "count_nonzero element_size get_device one_hot"
)
"""Methods and functions of tensors whose results have no graph."""

WITHOUT_GRAPH = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "layout"})
_INDICES = frozenset({"max", "min", "topk", "sort", "median", "kthvalue", "mode"})  # whose second result are indices
_PLAIN = words("float int bool len str repr print range isinstance type open hasattr round")
_MAKES = {f"torch.{name}" for name in words(
    "tensor zeros ones full arange randn rand randint eye linspace zeros_like ones_like randperm device no_grad "
    "manual_seed"
)}  # fmt: skip
_NUMBERS = ("math", "numpy", "time", "random", "os")
_STEADY = frozenset(PURE_METHODS) | COMPUTING | SAME_VALUES  # give nothing with a graph where they are given none
_FUNCTIONS = frozenset(PURE_FUNCTIONS) | {f"torch.{name}" for name in COMPUTING}
_NUMBERS = ("math", "numpy", "time", "random", "os")


def is_torch_function(source: SourceFile, node: ast.expr) -> bool:
    """Return whether a function of torch's is called that computes something of what it is given."""
    dotted = source.names.dotted(node)
    package, _, name = dotted.rpartition(".")
    computes = package in ("torch", "torch.nn.functional", "torch.linalg", "torch.special")
    return computes and not name.endswith("_") and name not in ("save", "compile", "is_grad_enabled", "from_numpy")


def recording(project: Project, source: SourceFile, nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Yield the expressions below `nodes` whose values may have a graph of their own."""
    for node in (inner for each in nodes for inner in ast.walk(each)):
        computed = isinstance(node, ast.Call | ast.BinOp | ast.UnaryOp | ast.Subscript)
        computed = computed or (isinstance(node, ast.Attribute) and node.attr in ("weight", "bias", "T", "mT"))
        is_read = not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        computed = computed and (not isinstance(node, ast.Subscript) or _is_of_weight(node))
        if computed and is_read and isinstance(node, ast.expr) and may_record(project, source, node):
            yield node


def _is_of_weight(node: ast.expr) -> bool:
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr in ("weight", "bias")


def may_record(project: Project, source: SourceFile, node: ast.expr) -> bool:
    """Return whether the value of an expression may have a graph."""
    return _records(project, source, node, frozenset())


def _records(project: Project, source: SourceFile, node: ast.expr, seen: frozenset[object]) -> bool:
    parts: list[ast.expr]
    match node:
        case ast.Constant() | ast.JoinedStr() | ast.Compare() | ast.Lambda() | ast.UnaryOp(op=ast.Not()):
            return False
        case ast.Attribute() if node.attr in WITHOUT_GRAPH | {"indices"}:
            return False
        case ast.Subscript() if is_indices(project, source, node):
            return False
        case ast.Call():
            return _call_records(project, source, node, seen)
        case ast.Name():
            return _name_records(project, source, node, seen)
        case ast.BinOp():
            parts = [node.left, node.right]
        case ast.UnaryOp():
            parts = [node.operand]
        case ast.Subscript() | ast.Attribute():
            parts = [node.value]
        case ast.List() | ast.Tuple():
            parts = node.elts
        case _:
            return True
    return any(_records(project, source, each, seen) for each in parts)


def is_indices(project: Project, source: SourceFile, node: ast.Subscript) -> bool:
    """Return whether an item is that of `x.max(1)[1]`."""
    is_second = isinstance(node.slice, ast.Constant) and node.slice.value == 1
    return is_second and is_ranked(project, source, node.value)


def is_ranked(project: Project, source: SourceFile, node: ast.expr) -> bool:
    """Return whether a call gives values of a tensor with their indices: `x.topk(3)`, `torch.sort(x)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not (node.args or node.keywords):
        return False
    of_torch = source.names.dotted(node.func) in ("", f"torch.{node.func.attr}")
    return of_torch and node.func.attr in _INDICES and node.func.attr not in project.functions


def _call_records(project: Project, source: SourceFile, call: ast.Call, seen: frozenset[object]) -> bool:
    name, dotted = last_name(call.func), source.names.dotted(call.func)
    given = [*call.args, *(each.value for each in call.keywords)]
    if is_builtin(source, call.func, _PLAIN):
        return False
    if dotted.partition(".")[0] in _NUMBERS or dotted in _MAKES:
        return any(each.arg == "requires_grad" for each in call.keywords)
    if dotted and is_torch_function(source, call.func) and name in ENDING:
        return False
    if name in project.functions:
        return _function_records(project, name, seen)
    if dotted or is_builtin(source, call.func, ("sum", "max", "min", "abs")):
        known = not dotted or dotted in _FUNCTIONS
        return not known or any(_records(project, source, each, seen) for each in given)
    if isinstance(call.func, ast.Attribute) and name in _STEADY | ENDING | {"numpy"}:
        ends = name in ENDING or name == "numpy"
        return not ends and any(_records(project, source, each, seen) for each in (call.func.value, *given))
    return True


def _function_records(project: Project, name: str, seen: frozenset[object]) -> bool:
    """Return whether what functions of the user's give back may have a graph."""
    for place, function in project.functions[name]:
        own = [node for node in ast.walk(function) if place.scope(node) is function]
        values = [node.value for node in own if isinstance(node, ast.Return) and node.value is not None]
        if any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Await) for node in own) or name.startswith("__"):
            return True
        if function not in seen and any(_records(project, place, each, seen | {function}) for each in values):
            return True
    return False


def _name_records(project: Project, source: SourceFile, node: ast.Name, seen: frozenset[object]) -> bool:
    scope = source.scope(node)
    if (scope, node.id) in seen:
        return False
    arguments = ast.walk(scope.args) if isinstance(scope, Function) else ()
    if any(isinstance(each, ast.arg) and each.arg == node.id for each in arguments):
        return True
    inside = list(ast.walk(scope))
    bound = [value for each in inside for to, value in pairs(each) if _is(to, node.id)]
    bound += [each.value for each in inside if isinstance(each, ast.AugAssign) and _is(each.target, node.id)]
    walked = [each.iter for each in inside if isinstance(each, ast.For) and _is_in(each.target, node.id)]
    stored = [each for each in inside if _is(each, node.id) and isinstance(getattr(each, "ctx", None), ast.Store)]
    if not stored or len(stored) != len(bound) + len(walked):
        return True
    if not all(_is_loader(project, source, each) for each in walked):
        return True
    return any(_records(project, source, each, seen | {(scope, node.id)}) for each in bound)


def _is_loader(project: Project, source: SourceFile, node: ast.expr) -> bool:
    made = Flow(project).origins(source, node)
    return bool(made) and all(place.names.dotted(call.func).endswith(".DataLoader") for place, call in made)


def _is_in(target: ast.expr, name: str) -> bool:
    return any(_is(each, name) for each in ast.walk(target))


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
