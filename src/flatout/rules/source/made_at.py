"""Where a module that `forward` calls is made: from `self.table(rows)` to `self.table = nn.Embedding(...)`."""

import ast
from collections.abc import Iterator

from flatout.rules.source.source_code import ancestors, statement_node
from flatout.schema.run import Frame

__all__ = ["made_at"]


def made_at(place: Frame, kind: str) -> Frame | None:
    """Return the line of the class around `place` that assigns an attribute which `place` uses, from a call of `kind`.

    None where the source does not tell, or several lines do.
    """
    used = statement_node(place)
    owner = next((node for node in ancestors(place) if isinstance(node, ast.ClassDef)), None)
    if used is None or owner is None:
        return None
    names = {node.attr for node in ast.walk(used) if isinstance(node, ast.Attribute)}
    found = {
        (statement.lineno, function.name)
        for function, statement in _assignments(owner)
        if _makes(statement, names, kind)
    }
    if len(found) != 1:
        return None
    line, name = found.pop()
    return Frame(place.file, line, f"{owner.name}.{name}")


def _assignments(owner: ast.ClassDef) -> Iterator[tuple[ast.FunctionDef, ast.Assign]]:
    for function in owner.body:
        if isinstance(function, ast.FunctionDef):
            yield from ((function, node) for node in ast.walk(function) if isinstance(node, ast.Assign))


def _makes(statement: ast.Assign, names: set[str], kind: str) -> bool:
    targets = {target.attr for target in statement.targets if isinstance(target, ast.Attribute)}
    calls = (node.func for node in ast.walk(statement.value) if isinstance(node, ast.Call))
    return bool(targets & names) and any(kind in ast.unparse(call) for call in calls)
