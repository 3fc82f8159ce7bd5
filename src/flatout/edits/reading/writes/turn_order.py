"""Whether the turns of a loop may see what others before them changed: by what they walk over, read, or call.

What a turn does before its changes may make names for parts of its tensors, look at their sizes and kinds, and fill an
optimizer's state. It reads no numbers of tensors, since those may be what an earlier turn changed.
"""

import ast

from flatout.edits.reading.dataflow import Flow, pairs
from flatout.edits.reading.error_handlers import caught_at
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.purity.pure_calls import words
from flatout.edits.reading.quiet_code import is_builtin
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.writes.changed_meanings import changed_meaning, traced_somewhere

__all__ = ["is_steady_number", "order_seen"]

_WALKED = words("parameters named_parameters buffers named_buffers")
_NUMBERED = ("enumerate", "named_parameters", "named_buffers")
_SIZES = words("dim size numel stride is_floating_point is_complex is_contiguous element_size")
_PARTS = words("detach view view_as data_ptr")
_TEXTS = words("startswith endswith lower upper split replace")
_MADE = words("zeros_like ones_like empty_like full_like zeros ones")
_BUILTINS = words("len isinstance zip enumerate list reversed getattr hasattr type")
_DOING = ast.NamedExpr | ast.Lambda | ast.Await | ast.Yield | ast.YieldFrom | ast.Starred
_MODES = ("__torch_function__", "__torch_dispatch__", "TorchFunctionMode", "TorchDispatchMode")


def is_steady_number(project: Project, source: SourceFile, node: ast.expr) -> bool:
    """Return whether an expression gives the same in each turn, where it gives a number."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and _is_of_class(project, source, each):
            return False
        if isinstance(each, ast.Call):
            known = source.names.dotted(each.func).startswith("math.")
            if not known and not is_builtin(source, each.func, ("float", "int", "min", "max", "abs")):
                return False
        elif isinstance(each, _DOING) or (isinstance(each, ast.Attribute) and each.attr in project.functions):
            return False
    return True


def _is_of_class(project: Project, source: SourceFile, node: ast.expr) -> bool:
    """Return whether a name may stand for an object of the user's that runs code where its items are read."""
    own = any(name in project.functions for name in ("__getitem__", "__iter__", "__next__", "__missing__"))
    return own and any(last_name(call.func) in project.classes for _, call in Flow(project).origins(source, node))


def order_seen(
    project: Project, source: SourceFile, loop: ast.For, heads: list[ast.stmt], conditions: list[ast.expr]
) -> str:
    """Return what may see that the changes at the end of each turn are made behind the loop, "" for nothing."""
    if any(name in project.mentions for name in _MODES):
        return "operations of tensors may be watched"
    meaning = changed_meaning(project) or traced_somewhere(project)
    if meaning:
        return meaning
    caught = caught_at(project, source, loop)
    if caught:
        return f"an error in a turn might be caught by {caught}"
    walked = _walked(project, source, loop.iter)
    if walked:
        return f"{walked} may see what a turn of the loop changes"
    plain = all(_is_head(project, source, each) for each in heads)
    if plain and all(_is_asked(project, source, each) for each in conditions):
        return ""
    return "the loop does more in each turn than to change tensors in place, or reads what they hold"


def _walked(project: Project, source: SourceFile, node: ast.expr) -> str:
    """Return what a loop walks over that may run code between its turns, "" for lists and models."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Constant | ast.List | ast.Tuple):
        made = [
            value for each in ast.walk(source.tree) for to, value in pairs(each) if ast.unparse(to) == ast.unparse(node)
        ]
        lazy = [each for each in made if isinstance(each, ast.GeneratorExp)]
        called = [each for each in made if isinstance(each, ast.Call) and last_name(each.func) in project.functions]
        loud = (lazy or called or _is_of_class(project, source, node) or _own_iterators(project)) and not isinstance(
            node, ast.Subscript | ast.List | ast.Tuple
        )
        return ast.unparse(node) if loud else ""
    if not isinstance(node, ast.Call) or last_name(node.func) in project.functions:
        return ast.unparse(node)
    if is_builtin(source, node.func, ("zip", "enumerate", "list", "reversed", "tuple")) and not node.keywords:
        return next(filter(None, (_walked(project, source, each) for each in node.args)), "")
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in _WALKED
    return "" if is_method else ast.unparse(node)


def _own_iterators(project: Project) -> bool:
    """Return whether functions of the user's yield what they walk over, apart from those of data sets."""
    known = (function for name, alike in project.functions.items() for _, function in alike if name != "__iter__")
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for function in known for node in ast.walk(function))


def _is_head(project: Project, source: SourceFile, node: ast.stmt) -> bool:
    """Return whether a statement only binds names for the turn, or passes the turn over."""
    if isinstance(node, ast.If):
        inner = all(isinstance(each, ast.Continue) or _is_head(project, source, each) for each in node.body)
        return inner and not node.orelse and _is_asked(project, source, node.test)
    if isinstance(node, ast.AugAssign):  # state["step"] += 1
        return _is_record(node.target) and isinstance(node.value, ast.Constant)
    if not isinstance(node, ast.Assign):
        return False
    parts = [part for each in node.targets for part in (each.elts if isinstance(each, ast.Tuple) else [each])]
    return all(isinstance(each, ast.Name) or _is_record(each) for each in parts) and _is_part(
        project, source, node.value
    )


def _is_record(node: ast.expr) -> bool:
    """Return whether an item has a text for its key: it is none of a tensor."""
    return (
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    )


def _is_part(project: Project, source: SourceFile, node: ast.expr) -> bool:
    """Return whether an expression names something, or makes it new, without reading the numbers of tensors."""
    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.Attribute():
            return node.attr not in project.functions and _is_part(project, source, node.value)
        case ast.Subscript():
            return _is_part(project, source, node.value) and _is_index(source, node)
        case ast.Tuple() | ast.List():
            return all(_is_part(project, source, each) for each in node.elts)
        case ast.Dict():
            return all(key is not None and _is_part(project, source, key) for key in (*node.keys, *node.values))
        case ast.Call():
            return _is_quiet_call(project, source, node)
    return False


def _is_index(source: SourceFile, node: ast.Subscript) -> bool:
    """Return whether an item is one of a list or dictionary, or a part of a tensor that shares its memory."""
    if isinstance(node.slice, ast.Constant) or last_name(node.value) == "state":
        return True
    for loop in (each for each in source.above(node) if isinstance(each, ast.For)):
        numbered = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in _NUMBERED
        first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and numbered else None
        if first is not None and ast.unparse(first) == ast.unparse(node.slice):
            return True
    return False


def _is_quiet_call(project: Project, source: SourceFile, call: ast.Call) -> bool:
    name, dotted = last_name(call.func), source.names.dotted(call.func)
    given = [*call.args, *(each.value for each in call.keywords)]
    if name in project.functions or not all(_is_part(project, source, each) for each in given):
        return False
    if dotted:
        return dotted.rpartition(".")[0] == "torch" and name in _MADE
    if is_builtin(source, call.func, _BUILTINS):
        return True
    is_method = isinstance(call.func, ast.Attribute) and name in _SIZES | _PARTS | _TEXTS
    return is_method and _is_part(project, source, call.func.value)  # type: ignore[attr-defined]


def _is_asked(project: Project, source: SourceFile, node: ast.expr) -> bool:
    """Return whether a condition asks for kinds, sizes and names alone."""
    match node:
        case ast.BoolOp():
            return all(_is_asked(project, source, each) for each in node.values)
        case ast.UnaryOp(op=ast.Not()):
            return _is_asked(project, source, node.operand)
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return _is_part(project, source, node.left) and _is_part(project, source, node.comparators[0])
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            is_text = isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
            return is_text and _is_part(project, source, node.comparators[0])
        case ast.Compare():
            return all(_is_size(project, source, each) for each in (node.left, *node.comparators))
        case ast.Attribute():
            return node.attr in ("requires_grad", "is_sparse", "is_leaf") and _is_part(project, source, node.value)
    return _is_size(project, source, node)


def _is_size(project: Project, source: SourceFile, node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Call):
        sized = last_name(node.func) in _SIZES | _TEXTS | {"len", "isinstance", "hasattr"}
        return sized and _is_quiet_call(project, source, node)
    sized = isinstance(node, ast.Attribute) and node.attr in ("shape", "ndim", "dtype", "device")
    return sized and _is_part(project, source, node.value)  # type: ignore[attr-defined]
