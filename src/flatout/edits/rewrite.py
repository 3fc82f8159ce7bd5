"""Changes of one file, made by LibCST: whatever they do not name stays as it was, byte for byte."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from flatout.edits.reading.source_file import SourceFile, Span

__all__ = ["OnBlock", "OnCall", "OnStatement", "SourceChanges", "Unplaced", "insert_line", "parse_line", "rewritten"]

OnCall = Callable[[cst.Call], cst.BaseExpression]
OnStatement = Callable[[cst.SimpleStatementLine, cst.Module], Sequence[cst.BaseStatement]]
OnBlock = Callable[[cst.BaseCompoundStatement, cst.Module], cst.BaseStatement]


class Unplaced(Exception):
    """A change has found nothing to act on at its place."""


@dataclass(frozen=True)
class SourceChanges:
    """What is to be done to calls, lines, and loops and functions, by where they begin: at `for`, `while` or `def`."""

    calls: dict[Span, OnCall] = field(default_factory=dict)
    lines: dict[int, OnStatement] = field(default_factory=dict)
    blocks: dict[int, OnBlock] = field(default_factory=dict)


class _Rewriter(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, changes: SourceChanges, module: cst.Module) -> None:
        super().__init__()
        self._changes, self._module = changes, module
        self.done: set[object] = set()

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        place = self._place(original_node)
        change = self._changes.calls.get(place)
        if change is None or place in self.done:
            return updated_node
        changed = change(updated_node)
        if changed is not updated_node:
            self.done.add(place)
        return changed

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        line = self._place(original_node)[0]
        if line not in self._changes.lines:
            return updated_node
        self.done.add(line)
        return cst.FlattenSentinel(self._changes.lines[line](updated_node, self._module))

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.BaseStatement:
        return self._block(self._place(original_node)[0], updated_node)

    def leave_While(self, original_node: cst.While, updated_node: cst.While) -> cst.BaseStatement:
        return self._block(self._place(original_node)[0], updated_node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.BaseStatement:
        return self._block(self._place(original_node.name)[0], updated_node)

    def _block(self, line: int, node: cst.BaseCompoundStatement) -> cst.BaseStatement:
        if line not in self._changes.blocks:
            return node
        self.done.add(line)
        return self._changes.blocks[line](node, self._module)

    def _place(self, node: cst.CSTNode) -> Span:
        found = self.get_metadata(PositionProvider, node)
        return found.start.line, found.start.column, found.end.line, found.end.column


def rewritten(source: SourceFile, changes: SourceChanges) -> SourceFile:
    """Return the file with the changes made.

    Raises:
        Unplaced: one of them has no place, so none was made.
    """
    wrapper = MetadataWrapper(cst.parse_module(source.code), unsafe_skip_copy=True)
    rewriter = _Rewriter(changes, wrapper.module)
    module = wrapper.visit(rewriter)
    if rewriter.done != {*changes.calls, *changes.lines, *changes.blocks}:
        raise Unplaced
    return replace(source, code=module.bytes)


def parse_line(code: str, module: cst.Module) -> cst.BaseStatement:
    """Return a statement with the line ends and the indentation of `module`."""
    return cst.parse_statement(code, config=module.config_for_parsing)


def insert_line(source: SourceFile, code: str, line: int, *, after: bool) -> SourceFile:
    """Return the file with a line before or after the top-level statement that begins on `line`.

    Before a statement, the comments and blank lines above it stay above. After one, a blank line comes first, unless
    the statement is no import. `line` 0 is the begin of the file.
    """
    wrapper = MetadataWrapper(cst.parse_module(source.code), unsafe_skip_copy=True)
    module, places = wrapper.module, wrapper.resolve(PositionProvider)
    body: list[cst.BaseStatement] = list(module.body)
    added = parse_line(code, module)
    at = next((at for at, each in enumerate(body) if places[each].start.line == line), 0 if not line else None)
    if at is None:
        raise Unplaced
    if not after and body:
        added = added.with_changes(leading_lines=getattr(body[at], "leading_lines", ()))
        body[at] = body[at].with_changes(leading_lines=())
    elif after and body and _is_import(body[at]):
        added = added.with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    body.insert(at + after, added)
    return replace(source, code=module.with_changes(body=body).bytes)


def _is_import(node: cst.CSTNode) -> bool:
    last = node.body[-1] if isinstance(node, cst.SimpleStatementLine) else None
    return isinstance(last, cst.Import | cst.ImportFrom)
