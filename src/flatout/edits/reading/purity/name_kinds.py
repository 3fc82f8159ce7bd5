"""What kind of thing a name stands for where it is used: a function, a class, an import, a builtin, or a variable."""

import ast
from enum import Enum

from flatout.edits.reading.source_file import SourceFile

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

    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global | ast.Nonlocal):
            shared |= {*node.names}
            continue
        name, kind = _bound(node)
        if kind is not None:
            known = found.setdefault(source.scope(node), {})
            known[name] = kind if known.get(name, kind) is kind else NameKind.VARIABLE
    for names in found.values():
        names.update(dict.fromkeys(shared & names.keys(), NameKind.VARIABLE))
    return found


def _bound(node: ast.AST) -> tuple[str, NameKind | None]:
    """Return the name that a node binds, and to what; None for none."""
    match node:
        case ast.Name(ctx=ast.Store() | ast.Del()):
            return node.id, NameKind.VARIABLE
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return node.name, NameKind.FUNCTION
        case ast.ClassDef():
            return node.name, NameKind.CLASS
        case ast.alias():
            return (node.asname or node.name).split(".")[0], NameKind.IMPORT
        case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return name, NameKind.VARIABLE
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return name, NameKind.VARIABLE
    return "", None
