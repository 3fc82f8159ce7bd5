"""What kind of thing a name stands for where it is used: a function, a class, an import, a builtin, or a variable."""

import ast
from enum import Enum

from flatout.edits.reading.source_file import Function, SourceFile

__all__ = ["NameKind", "NameKinds"]


class NameKind(Enum):
    """VARIABLE stands for whatever is not known to be one of the others."""

    VARIABLE = "variable"
    FUNCTION = "function"
    CLASS = "class"
    IMPORT = "import"
    BUILTIN = "builtin"


class NameKinds:
    """The kinds of the names of a project, scope by scope."""

    def __init__(self) -> None:
        """Know nothing yet: files are read when they are asked about."""
        self._files: dict[SourceFile, dict[ast.AST, dict[str, NameKind]]] = {}

    def kind(self, source: SourceFile, node: ast.Name) -> NameKind:
        """Return what kind of thing a name stands for at its place."""
        scopes = self._files.get(source)
        if scopes is None:
            scopes = self._files[source] = _scopes(source)
        own = source.scope(node)
        for scope in (own, *(each for each in source.above(own) if each in scopes)):
            if isinstance(scope, ast.ClassDef) and scope is not own:
                continue
            kind = scopes.get(scope, {}).get(node.id)
            if kind is not None:
                return kind
        return NameKind.VARIABLE if "*" in scopes[source.tree] else NameKind.BUILTIN


def _scopes(source: SourceFile) -> dict[ast.AST, dict[str, NameKind]]:
    """Return the kinds of the names that each scope of a file binds; "*" where it imports all of a module."""
    found: dict[ast.AST, dict[str, NameKind]] = {source.tree: {}}
    shared: set[str] = set()

    def bind(scope: ast.AST, name: str, kind: NameKind) -> None:
        known = found.setdefault(scope, {})
        known[name] = kind if known.get(name, kind) is kind else NameKind.VARIABLE

    for node in ast.walk(source.tree):
        scope = source.scope(node)
        if isinstance(node, ast.Global | ast.Nonlocal):
            shared |= {*node.names}
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bind(scope, node.id, NameKind.VARIABLE)
        elif isinstance(node, ast.arg):
            bind(scope, node.arg, NameKind.VARIABLE)
        elif isinstance(node, Function):
            bind(scope, node.name, NameKind.FUNCTION)
        elif isinstance(node, ast.ClassDef):
            bind(scope, node.name, NameKind.CLASS)
        elif isinstance(node, ast.alias):
            bind(scope, (node.asname or node.name).split(".")[0], NameKind.IMPORT)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            bind(scope, node.name, NameKind.VARIABLE)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bind(scope, node.rest, NameKind.VARIABLE)
    for names in found.values():
        names.update({name: NameKind.VARIABLE for name in shared & names.keys()})
    return found
