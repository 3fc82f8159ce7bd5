"""Attributes that a project sets to what may be called: a call of their name may not be the method it looks like."""

import ast

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile

__all__ = ["SetAttributes"]

_PLAIN = frozenset(
    {"bool", "dict", "float", "frozenset", "int", "len", "list", "max", "min", "set", "str", "sum", "tuple"}
)
_TENSORS = frozenset(
    f"{module}.{name}"
    for module in ("torch", "numpy")
    for name in (
        "arange",
        "array",
        "empty",
        "full",
        "ones",
        "ones_like",
        "rand",
        "randn",
        "tensor",
        "zeros",
        "zeros_like",
    )
)
_CALLABLE = ast.Lambda | ast.Name | ast.Attribute | ast.Subscript | ast.IfExp | ast.BoolOp | ast.Await


class SetAttributes:
    """The names of attributes by what they are set to.

    Attributes:
        on_modules: set on what is imported: `metrics.distance = mine`.
        on_objects: set to something that may be called: `self.mean = MeanMetric()`, `self.mean = mean`.
    """

    def __init__(self, project: Project) -> None:
        """Read all assignments of a project."""
        self.on_modules: set[str] = set()
        self.on_objects: set[str] = set()
        for source in project.sources:
            for node in ast.walk(source.tree):
                for target, value in pairs(node):
                    self._read(source, target, value)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
                    names = (each.value for each in node.args[1:2] if isinstance(each, ast.Constant))
                    self.on_objects |= {name for name in names if isinstance(name, str)}

    def _read(self, source: SourceFile, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Attribute):
            name = target.attr
            self.on_modules |= {name} if source.names.dotted(target) else set()
        elif isinstance(target, ast.Name) and isinstance(source.scope(target), ast.ClassDef):
            name = target.id
        else:
            return
        if isinstance(value, ast.Call):
            is_builtin = isinstance(value.func, ast.Name) and value.func.id in _PLAIN
            self.on_objects |= set() if is_builtin or source.names.dotted(value.func) in _TENSORS else {name}
        elif isinstance(value, _CALLABLE):
            self.on_objects.add(name)
