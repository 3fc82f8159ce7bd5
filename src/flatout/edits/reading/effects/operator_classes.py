"""The user's classes whose objects act where an operator is applied to them: `x[i]`, `len(x)`, `for v in x`."""

import ast
from collections.abc import Mapping

from flatout.edits.reading.effects.pure_calls import words
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["KNOWN_BASES", "SEES_ALL", "operators", "wrapper_of"]

KNOWN_BASES = words(
    "object Module LightningModule LightningDataModule Callback Dataset IterableDataset ABC Protocol Generic "
    "NamedTuple "
    "Enum IntEnum TypedDict Exception dict list tuple set str int float Trainer Sequential TestCase"
)
"""Classes of libraries that leave the methods of a class made from them as they are."""

SEES_ALL = frozenset(
    {"__getattr__", "__getattribute__", "__get__", "__torch_function__", "__torch_dispatch__", "__array_function__"}
)
"""Methods that act without an operator."""

_ELSEWHERE = words(
    "__init__ __new__ __post_init__ __init_subclass__ __class_getitem__ __call__ __enter__ __exit__ __del__ "
    "__setattr__ __setitem__ __delitem__ __getstate__ __setstate__ __reduce__"
)

_DECORATORS = frozenset({"dataclass", "total_ordering", "final", "runtime_checkable"})

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


def wrapper_of(project: Project, around: ast.ClassDef) -> str:
    """Return what may put something around the methods of a class, "" where nothing is seen."""
    for base in around.bases:
        name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
        if name not in KNOWN_BASES and name not in project.classes:
            return ast.unparse(base)
    decorators = [each.func if isinstance(each, ast.Call) else each for each in around.decorator_list]
    strange = [each for each in decorators if ast.unparse(each).rpartition(".")[2] not in _DECORATORS]
    strange += [each.value for each in around.keywords if ast.unparse(each.value).rpartition(".")[2] != "ABCMeta"]
    if strange:
        return ast.unparse(strange[0])
    return "__init_subclass__" if around.bases and "__init_subclass__" in project.functions else ""
