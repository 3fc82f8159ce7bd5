"""What a project gives another meaning: operators, names that look like those of libraries, and when code runs."""

import ast
import re

from flatout.edits.reading.dataflow import pairs
from flatout.edits.reading.project import Project

__all__ = ["own_names", "own_operator", "runs_meanwhile"]

_MEANWHILE = frozenset({  # modules whose functions let other code run at any time
    "threading", "_thread", "concurrent", "signal", "multiprocessing", "asyncio", "gevent", "eventlet", "trio", "anyio",
    "weakref", "joblib", "builtins",
})  # fmt: skip
_OPERATORS = re.compile(
    r"__(?:[ri]?(?:add|sub|mul|matmul|truediv|floordiv|mod|divmod|pow|lshift|rshift|and|or|xor)|neg|pos|abs|invert|lt|le|gt|"
    r"ge|eq|ne|bool|float|int|index|complex|round|trunc|floor|ceil|hash|contains|setattr|delattr|getattr|"
    r"getattribute|get|set|delete|del|copy|deepcopy|reduce|reduce_ex|torch_function|torch_dispatch|array|array_ufunc|"
    r"array_function|instancecheck|subclasscheck|missing)__"
)  # by which operators, comparisons and copies of the user's classes run code


def runs_meanwhile(project: Project) -> str:
    """Return a module that is imported, whose functions let other code run between any two lines; "" for none."""
    for _, node in project.nodes(ast.Import, ast.ImportFrom):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for name in names:
            if name.partition(".")[0] in _MEANWHILE:
                return name
    return ""


def own_operator(project: Project) -> str:
    """Return the name of a method of the user's that runs where no call is written, "" for none."""
    found = _OPERATORS.search(project.mentions)
    return found.group() if found else ""


def own_names(project: Project) -> set[str]:
    """Return the names of the user's functions, and those that classes bind to what may be properties."""
    names = {*project.functions}
    for _, made in project.nodes(ast.ClassDef):
        bound = [each for node in made.body for each in pairs(node)]
        names |= {ast.unparse(target) for target, value in bound if not isinstance(value, ast.Constant)}
    return names
