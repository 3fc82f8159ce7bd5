"""One file of the user's: its bytes, its syntax tree, and what its names stand for."""

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import libcst

__all__ = ["Function", "ModuleNames", "SourceFile", "Span", "read_source", "span"]

Span = tuple[int, int, int, int]
"""First line and column, last line and column: lines counted from 1, columns in characters from 0."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.Lambda | ast.ClassDef | ast.Module


def span(source: "SourceFile", node: ast.expr) -> Span:
    """Return where an expression stands; Python's own columns count bytes of UTF-8."""
    ends = ((node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset))
    (first, start), (last, end) = ((line, _characters(source.lines[line - 1], column)) for line, column in ends)
    return first, start, last, end


def _characters(line: str, num_bytes: int) -> int:
    return len(line.encode("utf-8", "replace")[:num_bytes].decode("utf-8", "replace"))


class ModuleNames:
    """What the names of one file stand for."""

    def __init__(self, tree: ast.Module, package: str) -> None:
        """Take the syntax tree, and the dotted name of the package that relative imports start from."""
        self._tree = tree
        self._package = package

    @cached_property
    def imports(self) -> dict[str, str]:
        """What each imported name stands for; names that are bound in another way, too, are left out."""
        found: dict[str, str] = {}
        for node in ast.walk(self._tree):
            for name, dotted in _imported(node, self._package):
                found[name] = dotted if found.get(name, dotted) == dotted else ""
        return {name: dotted for name, dotted in found.items() if dotted and name not in self.bound}

    @cached_property
    def bound(self) -> set[str]:
        """Names that are bound by anything but an import."""
        bound: set[str] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                bound.add(node.id)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, Function | ast.ClassDef):
                bound.add(node.name)
        return bound

    def dotted(self, node: ast.AST) -> str:
        """Return `torch.utils.data.DataLoader` for whatever the file calls it, "" where the name is not imported."""
        if isinstance(node, ast.Name):
            return self.imports.get(node.id, "")
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""


@dataclass(frozen=True)
class SourceFile:
    """A file as it is, or as it will be: `code` are its bytes."""

    path: Path
    shown: str  # how messages and the diff name it
    code: bytes
    package: str = ""  # dotted name of the package that relative imports start from

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree, for reading."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say about the source, the script's own start says
            return ast.parse(self.code)

    @cached_property
    def lines(self) -> list[str]:
        """The lines as text, as Python's positions count them."""
        encoding, _ = tokenize.detect_encoding(io.BytesIO(self.code).readline)
        text = self.code.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
        return text.split("\n")

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node that each node stands in."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def names(self) -> ModuleNames:
        """What its names stand for."""
        return ModuleNames(self.tree, self.package)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, the innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> Scope:
        """Return the function, class or module whose names a node sees first."""
        return next((each for each in self.above(node) if isinstance(each, Scope)), self.tree)

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that an expression stands in."""
        return next(each for each in (node, *self.above(node)) if isinstance(each, ast.stmt))

    def at(self, node: ast.expr | ast.stmt, fact: str) -> str:
        """Return a fact with its place before it."""
        return f"{self.shown}:{node.lineno}: {fact}"


def _imported(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, with what it stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name if alias.asname else alias.name.split(".")[0]
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".") if package else []
        base = ".".join([*above[: len(above) - node.level + 1], *([node.module] if node.module else [])])
        for alias in node.names:
            yield alias.asname or alias.name, f"{base if node.level else node.module}.{alias.name}"


def read_source(path: Path, shown: str, package: str = "") -> SourceFile:
    """Read a file.

    Raises:
        OSError: it cannot be read.
        SyntaxError: it is no Python, or none that could be written back byte for byte.
    """
    source = SourceFile(path, shown, path.read_bytes(), package)
    try:
        _ = source.tree, source.lines
        same = libcst.parse_module(source.code).bytes == source.code
    except (libcst.ParserSyntaxError, ValueError, LookupError, RecursionError) as error:
        raise SyntaxError(f"it cannot be parsed ({type(error).__name__})") from None
    if not same:
        raise SyntaxError("its line endings are mixed and would not be preserved")
    return source
