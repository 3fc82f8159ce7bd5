"""The user's classes whose objects act where an operator is applied to them: `x[i]`, `len(x)`, `x + y`, `for v in x`."""

import ast
from collections.abc import Mapping

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["KNOWN_BASES", "SEES_ALL", "operators"]

KNOWN_BASES = frozenset(
    "object Module LightningModule LightningDataModule Callback Dataset IterableDataset ABC Protocol Generic NamedTuple "
    "Enum IntEnum TypedDict Exception dict list tuple set str int float Trainer Sequential TestCase".split()
)
"""Classes of libraries that leave the methods of a class made from them as they are."""

SEES_ALL = frozenset(
    {"__getattr__", "__getattribute__", "__get__", "__torch_function__", "__torch_dispatch__", "__array_function__"}
)
"""Methods that act without an operator."""

_ELSEWHERE = frozenset(
    "__init__ __new__ __post_init__ __init_subclass__ __class_getitem__ __call__ __enter__ __exit__ __del__ "
    "__setattr__ __setitem__ __delitem__ __getstate__ __setstate__ __reduce__".split()
)

Operators = Mapping[str, list[tuple[SourceFile, Function | None]]]


def operators(project: Project) -> Operators:
    """Return the methods that operators call, by the names of their classes; None for those of an unknown class."""
    found: dict[str, list[tuple[SourceFile, Function | None]]] = {}
    for source, node in project.nodes(ast.ClassDef):
        own = [each for each in node.body if isinstance(each, Function)]
        methods = [each for each in own if each.name.startswith("__") and each.name not in _ELSEWHERE]
        bases = {ast.unparse(each).partition("[")[0].rpartition(".")[2] for each in node.bases}
        if methods or not bases <= KNOWN_BASES | project.classes.keys():
            found.setdefault(node.name, []).extend((source, each) for each in methods)
            found[node.name] += [] if bases <= KNOWN_BASES | project.classes.keys() else [(source, None)]
        for base in bases & project.classes.keys():  # what is inherited
            found.setdefault(node.name, []).extend(
                (place, each)
                for place, parent in project.classes[base]
                for each in parent.body
                if isinstance(each, Function) and each.name.startswith("__") and each.name not in _ELSEWHERE
            )
    return {name: methods for name, methods in found.items() if methods}
