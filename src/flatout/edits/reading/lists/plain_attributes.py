"""Attributes of `self` that are plain values in its dictionary: reading one runs no code, and it is there."""

import ast
from collections.abc import Iterator

from flatout.edits.reading.blocks import bound_as_words
from flatout.edits.reading.called_functions import name_called
from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile
from flatout.edits.reading.user_classes import class_around

__all__ = ["is_plain_attribute"]

_BASES = {
    "torch.nn.Module", "torch.utils.data.BatchSampler", "torch.utils.data.Dataset",
    "torch.utils.data.IterableDataset", "torch.utils.data.Sampler", "torch.utils.data.dataset.Dataset",
    "torch.utils.data.sampler.Sampler",
}  # fmt: skip
_ACTING = {
    "__class__", "__delattr__", "__get__", "__getattr__", "__getattribute__", "__new__", "__setattr__", "__slots__",
}  # fmt: skip
_STATES = ("__copy__", "__deepcopy__", "__getstate__", "__reduce__", "__reduce_ex__", "__setstate__")
_CHANGING = ("delattr", "setattr")


def is_plain_attribute(project: Project, source: SourceFile, node: ast.expr, function: Function) -> bool:
    """Return whether an expression is `self.name` in a method, and `name` is set by each constructor, as it is."""
    if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)) or node.attr.startswith("__"):
        return False
    owner = source.parents[function]
    given = [*function.args.posonlyargs, *function.args.args]
    if not isinstance(owner, ast.ClassDef) or not given or given[0].arg != node.value.id:
        return False
    if any(isinstance(decorator, ast.Name) for decorator in function.decorator_list):
        return False  # of a class or of none: the first argument is no object of the class
    stored = (each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == node.value.id)
    if any(not isinstance(each.ctx, ast.Load) for each in stored):
        return False
    if _is_called_for_others(project, owner.name, function.name):
        return False
    return not any(_acts(project, node.attr)) and _is_known(project, source, owner, node.attr)


def _is_called_for_others(project: Project, owner: str, method: str) -> bool:
    """Return whether a method may be called for something else than an object of its class: `Owner.method(other)`."""
    for _, node in project.nodes(ast.Attribute):
        whose = ast.unparse(node.value)
        if node.attr == method and (whose == owner or whose.startswith("type(") or "__class__" in whose):
            return True
    calls = [(name_called(call), len(call.args)) for _, call in project.nodes(ast.Call)]
    return any(name in ("new_class", "make_dataclass") or (name == "type" and num > 1) for name, num in calls)


def _is_known(project: Project, source: SourceFile, owner: ast.ClassDef, name: str) -> bool:
    """Return whether a class is made by its own constructor, which sets the attribute, and of nothing that acts."""
    if owner.decorator_list or owner.keywords or source.parents[owner] is not source.tree:
        return False
    if any(source.names.dotted(base) not in _BASES for base in owner.bases if ast.unparse(base) != "object"):
        return False
    bases = (base for _, other in project.nodes(ast.ClassDef) for base in other.bases)
    if any(owner.name in (getattr(each, "id", ""), getattr(each, "attr", "")) for b in bases for each in ast.walk(b)):
        return False  # a class made from it may leave out its constructor
    makers = [each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    if len(makers) != 1 or makers[0].decorator_list or not makers[0].args.args:
        return False
    if any(isinstance(each, ast.FunctionDef) and each.name in _STATES for each in owner.body):
        return False  # a copy may be without the attribute
    return _sets(project, source, makers[0], name)


def _sets(project: Project, source: SourceFile, maker: ast.FunctionDef, name: str) -> bool:
    """Return whether a constructor sets an attribute whatever it is given, before others see the object."""
    own = maker.args.args[0].arg
    for statement in maker.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Return):
                return False
            if isinstance(node, ast.Name) and node.id == own:
                above = source.parents[node]
                if not isinstance(above, ast.Attribute) or isinstance(source.parents[above], ast.Call):
                    return False
                if isinstance(above.ctx, ast.Load) and above.attr in project.functions:
                    return False
        if any(ast.unparse(to) == f"{own}.{name}" for to, _ in pairs(statement)):
            return True
    return False


def _acts(project: Project, name: str) -> Iterator[bool]:
    """Yield what may make something else of an attribute of that name than a value."""
    for _, definition in project.nodes(ast.ClassDef):
        yield any(_bound_in(each) & {name, *_ACTING} for each in definition.body)
    for source, node in project.nodes(ast.Attribute):
        if node.attr in _ACTING and not isinstance(node.ctx, ast.Load):
            yield True
        elif node.attr == name and not isinstance(node.ctx, ast.Load):
            owner = class_around(source, node)
            yield isinstance(node.ctx, ast.Del) or owner is None or ast.unparse(node.value) != "self"
        elif node.attr in ("__setattr__", "__delattr__", "__new__"):
            yield True
    for source, node in project.nodes(ast.Name):
        if node.id in _CHANGING:
            yield _may_set(source.parents[node], name)


def _bound_in(statement: ast.stmt) -> set[str]:
    """Return the names that a statement of a class binds there."""
    if isinstance(statement, Function | ast.ClassDef):
        return {statement.name}
    found = (each for each in ast.walk(statement) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load))
    return {each.id for each in found} | bound_as_words([statement])


def _may_set(call: ast.AST, name: str) -> bool:
    if not isinstance(call, ast.Call) or len(call.args) < 2 or not isinstance(call.args[1], ast.Constant):
        return True
    return call.args[1].value == name
