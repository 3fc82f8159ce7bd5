"""The user's own classes: which class a node stands in, and which are made from which."""

import ast

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile

__all__ = ["class_around", "names_below"]


def class_around(source: SourceFile, node: ast.AST) -> ast.ClassDef | None:
    """Return the innermost class that a node stands in."""
    return next((each for each in source.above(node) if isinstance(each, ast.ClassDef)), None)


def names_below(project: Project, name: str) -> set[str]:
    """Return the name of a class and those of the classes made from it, however far down."""
    found, size = {name}, 0
    while size != len(found):
        size = len(found)
        for each, known in project.classes.items():
            bases = (base for _, definition in known for base in definition.bases)
            if any(ast.unparse(base).rpartition(".")[2] in found for base in bases):
                found.add(each)
    return found
