"""What an attribute of `self` is set to, in the class that a node stands in."""

import ast

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.user_classes import class_around

__all__ = ["attribute_values", "is_made_by"]


def attribute_values(project: Project, source: SourceFile, node: ast.expr) -> list[tuple[SourceFile, ast.expr]]:
    """Return what `self.name` is set to in its class; where that sets nothing, in all classes of the project."""
    if not isinstance(node, ast.Attribute) or ast.unparse(node.value) != "self":
        return []
    own = class_around(source, node)
    found = [] if own is None else [(source, value) for value in _values(own, node.attr)]
    others = project.nodes(ast.ClassDef)
    return found or [(place, value) for place, other in others for value in _values(other, node.attr)]


def _values(around: ast.ClassDef, name: str) -> list[ast.expr]:
    found = []
    for each in ast.walk(around):
        for target, value in pairs(each):
            if isinstance(target, ast.Attribute) and target.attr == name and ast.unparse(target.value) == "self":
                found.append(value)
    return found


def is_made_by(project: Project, source: SourceFile, node: ast.expr, maker: str) -> bool:
    """Return whether `self.name` is what a call of `maker` (dotted) makes, wherever it is set."""
    values = attribute_values(project, source, node)
    calls = [place.names.dotted(each.func) == maker for place, each in values if isinstance(each, ast.Call)]
    return bool(values) and len(calls) == len(values) and all(calls)
