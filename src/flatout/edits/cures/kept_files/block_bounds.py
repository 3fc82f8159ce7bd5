"""Where a block that reads a file begins and ends, and which names it has in common with the code around it."""

import ast
import builtins
from collections.abc import Sequence

from flatout.edits.reading.source_file import Function, SourceFile

__all__ = [
    "BY_NAME",
    "added_to",
    "ends_with_return",
    "free_name",
    "imports_name",
    "is_once",
    "is_same",
    "shared_names",
    "start_of",
]

BY_NAME = frozenset({"locals", "vars", "eval", "exec", "globals", "dir"})
"""Functions that may read variables by their names."""

_COMPREHENSION = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_EMPTY = ast.List | ast.Dict | ast.Constant | ast.Tuple


def is_once(source: SourceFile, call: ast.expr, statement: ast.stmt) -> bool:
    """Return whether a call is made once, whatever else is, when its statement runs."""
    below: ast.AST = call
    for above in source.above(call):
        if above is statement:
            break
        if isinstance(above, ast.IfExp | ast.BoolOp | ast.Lambda):
            return False
        if isinstance(above, ast.comprehension) and below is not above.iter:
            return False
        loops = above.generators if isinstance(above, _COMPREHENSION) else []
        if loops and below is not loops[0]:
            return False
        below = above
    return not isinstance(statement, ast.If | ast.While | ast.Assert | ast.Match | Function | ast.ClassDef)


def start_of(block: Sequence[ast.stmt], start: int, end: int) -> int:
    """Return where a block begins with the empty lists and the like above it that it fills."""
    first = start
    for at in range(start - 1, -1, -1):
        above = block[at]
        if not isinstance(above, ast.Assign) or not isinstance(above.value, _EMPTY) or len(above.targets) > 1:
            break
        parts = [each for each in ast.walk(above.value) if isinstance(each, ast.Name)]
        target = above.targets[0]
        if parts or not isinstance(target, ast.Name):
            break
        read = (each for part in block[at + 1 : end] for each in ast.walk(part) if isinstance(each, ast.Name))
        if any(each.id == target.id for each in read):
            first = at
    return first


def ends_with_return(statement: ast.stmt) -> bool:
    """Return whether a statement ends with a `return`."""
    if isinstance(statement, ast.With):
        return ends_with_return(statement.body[-1])
    return isinstance(statement, ast.Return)


def is_same(one: ast.expr, other: ast.expr) -> bool:
    """Return whether two expressions are written alike."""
    return ast.unparse(one) == ast.unparse(other)


def free_name(wanted: str, used: set[str]) -> str:
    """Return a name that is neither used nor one of Python's own, the wanted one if it can be."""
    found, number = wanted, 1
    while found in used or hasattr(builtins, found):
        number += 1
        found = f"{wanted}_{number}"
    return found


def imports_name(statement: ast.stmt, name: str) -> bool:
    """Return whether a statement of the module, or one in its `if` or `try`, imports a name."""
    if isinstance(statement, Function | ast.ClassDef):
        return False
    aliases = (each for each in ast.walk(statement) if isinstance(each, ast.alias))
    return any((each.asname or each.name.partition(".")[0]) == name for each in aliases)


def added_to(scope: ast.AST, inside: set[ast.AST]) -> set[str]:
    """Return the names that are added to outside of a block: `x += 1` reads, too."""
    added = (each.target for each in ast.walk(scope) if isinstance(each, ast.AugAssign) and each not in inside)
    return {each.id for each in added if isinstance(each, ast.Name)}


def shared_names(scope: ast.AST) -> set[str]:
    """Return the names in a function that are those of others, and what it looks up by name alone."""
    nodes = [*ast.walk(scope)]
    found = {name for each in nodes if isinstance(each, ast.Global | ast.Nonlocal) for name in each.names}
    return found | {each.id for each in nodes if isinstance(each, ast.Name) and each.id in BY_NAME}
