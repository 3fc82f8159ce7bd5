"""Tensors that an object makes for itself, `self.matrix = torch.zeros(...)`, and that nobody else has in his hands.

Their memory is reached by the attribute alone, no graph of autograd keeps them, and the name is that of one tensor as
long as nothing is called. Objects that are asked for the tensor itself (`return self.matrix`) are none of these.
"""

import ast

from flatout.edits.cures.elements.function_loops import LoopsOf, calls_builtin
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.user_classes import names_below

__all__ = ["values_of_own"]

_SHOWN = frozenset({"device", "dtype", "ndim", "shape"})
_NEW = frozenset({  # methods that give numbers, or new tensors
    "all", "any", "argmax", "argmin", "clone", "diag", "dim", "item", "max", "mean", "min", "numel", "prod", "size",
    "std", "sum", "tolist", "trace", "var",
})  # fmt: skip
_SAME = frozenset({"cpu", "detach", "diagonal", "double", "float", "int", "long", "numpy", "t", "to"})
_IN_FLOATS = frozenset({"double", "float"})
_IN_PLACE = frozenset({"fill_", "zero_"})
_HANDED_ON = frozenset({"float", "int", "len", "print", "str"})
_HOOKS = frozenset({"__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__slots__", "__init_subclass__"})
_SETS = frozenset({"setattr", "delattr", "__dict__", "vars"})
_BY_NAME = frozenset({"attrgetter", "getattr", "register_buffer", "register_parameter"})
_PLAIN_BASES = ("object", "torch.nn.Module")


def values_of_own(loops: LoopsOf, node: ast.expr) -> list[tuple[SourceFile, ast.expr]]:
    """Return what a tensor of the object is set to, `self.name`; nothing where somebody else may have it."""
    scope, source = loops.scope, loops.source
    if not isinstance(node, ast.Attribute) or not isinstance(scope, Function):
        return []
    around = source.parents[scope]
    given = [*scope.args.posonlyargs, *scope.args.args]
    if not isinstance(around, ast.ClassDef) or scope.decorator_list or not given:
        return []
    root = given[0].arg
    if ast.unparse(node.value) != root or root != "self" or loops.stored(root) or root in loops.unfollowed:
        return []
    if node.attr.startswith("__") or not _is_plain_class(loops.project, source, around):
        return []
    if _is_named_otherwise(loops.project, node.attr):
        return []
    stored = [pair for pair in loops.project.nodes(ast.Attribute) if pair[1].attr == node.attr]
    values = _values(loops.project, node.attr)
    num_set = sum(not isinstance(each.ctx, ast.Load) for _, each in stored)
    read = [pair for pair in stored if isinstance(pair[1].ctx, ast.Load)]
    new = _NEW | _IN_FLOATS if all(_is_whole(place, value) for place, value in values) else _NEW
    is_made = _is_set_first(around, node.attr) and num_set == len(values)
    return values if is_made and all(_is_kept(place, each, node.attr, new) for place, each in read) else []


def _is_plain_class(project: Project, source: SourceFile, around: ast.ClassDef) -> bool:
    """Return whether a class has no bases but torch's, none made from it, and nothing that makes attributes."""
    if around.decorator_list or around.keywords or len(project.classes[around.name]) != 1:
        return False
    if names_below(project, around.name) != {around.name}:
        return False
    return all((source.names.dotted(base) or ast.unparse(base)) in _PLAIN_BASES for base in around.bases)


def _is_named_otherwise(project: Project, name: str) -> bool:
    """Return whether something may set or read an attribute without its name behind a dot."""
    for _, node in project.nodes(ast.Name, ast.Attribute, ast.Constant, ast.FunctionDef, ast.ClassDef, ast.keyword):
        word = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
        if word in _SETS | _HOOKS or (isinstance(node, ast.Constant) and node.value == name):
            return True
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return True
    for _, call in project.nodes(ast.Call):
        asked = ast.unparse(call.func).rpartition(".")[2] in _BY_NAME
        if asked and not any(isinstance(each, ast.Constant) and type(each.value) is str for each in call.args):
            return True
    classes = [each for _, each in project.nodes(ast.ClassDef)]
    fields = [inner for each in classes for inner in each.body if isinstance(inner, ast.Assign | ast.AnnAssign)]
    return any(isinstance(each, ast.Name) and each.id == name for field in fields for each in ast.walk(field))


def _values(project: Project, name: str) -> list[tuple[SourceFile, ast.expr]]:
    bound = [(place, pair) for place in project.sources for each in ast.walk(place.tree) for pair in pairs(each)]
    return [
        (place, value)
        for place, (target, value) in bound
        if isinstance(target, ast.Attribute) and target.attr == name and ast.unparse(target.value) == "self"
    ]


def _is_set_first(around: ast.ClassDef, name: str) -> bool:
    """Return whether an object has the attribute as soon as it is made."""
    first = next((each for each in around.body if isinstance(each, Function) and each.name == "__init__"), None)
    bound = [pair for each in (first.body if first else ()) for pair in pairs(each)]
    return any(ast.unparse(target) == f"self.{name}" for target, _ in bound)


def _is_whole(source: SourceFile, value: ast.expr) -> bool:
    """Return whether a tensor is made with a type of whole numbers, so that `.float()` gives another one."""
    given = value.keywords if isinstance(value, ast.Call) else []
    named = {each.arg: source.names.dotted(each.value) for each in given}
    return named.get("dtype") in (
        "torch.int64",
        "torch.long",
        "torch.int32",
        "torch.int",
    )


def _is_kept(source: SourceFile, node: ast.expr, name: str, new: frozenset[str]) -> bool:
    """Return whether a mention of the tensor gives its memory to nobody, and to no graph of autograd.

    `new`: methods that give numbers, or new tensors.
    """
    above = source.parents[node]
    if isinstance(above, ast.Expr | ast.FormattedValue):
        return True
    if isinstance(above, ast.Attribute):
        call = source.parents[above]
        if above.attr in _SHOWN:
            return True
        if not isinstance(call, ast.Call) or call.func is not above:
            return False
        if above.attr in _IN_PLACE:
            return isinstance(source.parents[call], ast.Expr)
        return above.attr in new or (above.attr in _SAME and _is_kept(source, call, name, new))
    if isinstance(above, ast.Subscript) and above.value is node:
        return not isinstance(above.ctx, ast.Load) or _is_kept(source, above, name, new)
    if isinstance(above, ast.BinOp | ast.Compare):
        return all(_is_own_number(each, name) for each in ast.iter_child_nodes(above) if isinstance(each, ast.expr))
    return isinstance(above, ast.Call) and node in above.args and calls_builtin(source, above, _HANDED_ON)


def _is_own_number(node: ast.expr, name: str) -> bool:
    """Return whether an expression is made of the tensor alone, and of numbers in sight."""
    names = [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
    named = {each.attr if isinstance(each, ast.Attribute) else each.id for each in names}
    return named <= {name, "self"} | _NEW | _SAME | _SHOWN
