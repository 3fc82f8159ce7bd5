"""Changes of one file as new text for expressions and statements: all else stays as it was, byte for byte."""

import ast
import io
import tokenize
import warnings
from dataclasses import replace

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.rewrite import Unplaced

__all__ = ["TextChanges", "fresh_name", "operand"]


class TextChanges:
    """Collects changes of a file, told by the nodes of its tree; `done` makes them, all or none."""

    def __init__(self, source: SourceFile) -> None:
        """Change nothing yet.

        Raises:
            Unplaced: its lines end in several ways.
        """
        self._source = source
        self._starts = [0]
        for line in source.lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._text = "\n".join(source.lines)
        num_ends, self._end = len(source.lines) - 1, "\r\n" if b"\r" in source.code else "\n"
        if source.code.count(b"\r") not in (0, num_ends) or source.code.count(b"\r\n") not in (0, num_ends):
            raise Unplaced
        self._new: list[tuple[int, int, str]] = []

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Return how a node is written."""
        return self._text[slice(*self._place(node))]

    def replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        """Write `text` in place of a node.

        Raises:
            Unplaced: there is a comment in it, which would be lost.
        """
        if any(each.type == tokenize.COMMENT for each in self._tokens(self.text(node))):
            raise Unplaced
        self._new.append((*self._place(node), text))

    def remove(self, statement: ast.stmt) -> None:
        """Take out a statement, with its line; where nothing else is in its block, `pass` stays.

        Raises:
            Unplaced: it shares a line with others.
        """
        first, last = self._lines(statement)
        above = self._source.parents[statement]
        block = next(each for _, each in ast.iter_fields(above) if isinstance(each, list) and statement in each)
        if len(block) == 1:
            self.replace(statement, "pass")
        else:
            self._new.append((self._starts[first], min(self._starts[last + 1], len(self._text)), ""))

    def before(self, statement: ast.stmt, *lines: str) -> None:
        """Write lines before a statement, indented as it is.

        Raises:
            Unplaced: it does not begin its line.
        """
        first, _ = self._lines(statement)
        place = self._starts[first]
        self._new.append((place, place, "".join(f"{self._indent(first)}{line}\n" for line in lines)))

    def after(self, statement: ast.stmt, *lines: str) -> None:
        """Write lines after a statement, indented as it is.

        Raises:
            Unplaced: it does not begin its line, or something follows it there.
        """
        first, last = self._lines(statement)
        text = "".join(f"{self._indent(first)}{line}\n" for line in lines)
        place = self._starts[last + 1]
        if place > len(self._text):  # the file's last line has no end
            place, text = len(self._text), "\n" + text.removesuffix("\n")
        self._new.append((place, place, text))

    def written(self, statement: ast.stmt) -> list[str]:
        """Return the lines of a statement, with a comment behind it, without its indentation.

        Raises:
            Unplaced: it does not stand on lines of its own, or holds a string of several lines.
        """
        first, last = self._lines(statement)
        if any(self._inside_string(statement, line) for line in range(first + 1, last + 1)):
            raise Unplaced
        return [line.removeprefix(self._indent(first)) for line in self._source.lines[first : last + 1]]

    def indented(self, statement: ast.stmt, head: str, *following: ast.stmt) -> None:
        """Put a statement, and those `following` it in its block, under `head`, such as `with torch.no_grad():`.

        Raises:
            Unplaced: one does not stand on lines of its own, or holds a string of several lines.
        """
        first, last = self._lines(statement)
        inner = "\t" if "\t" in self._indent(first) else "    "
        for each in (statement, *following):
            start, last = self._lines(each)
            if any(self._inside_string(each, line) for line in range(start + 1, last + 1)):
                raise Unplaced
        lines = [f"{inner}{line}" if line.strip() else line for line in self._source.lines[first : last + 1]]
        text = "\n".join([f"{self._indent(first)}{head}", *lines])
        self._new.append((self._starts[first], self._starts[last + 1] - 1, text))

    def done(self, project: Project) -> Project:
        """Return the project with the changes made.

        Raises:
            Unplaced: two of them want one place, or what comes out is not Python.
        """
        text, end = self._text, len(self._text) + 1
        placed = [(start, stop, number) for number, (start, stop, _) in enumerate(self._new)]
        for start, stop, number in sorted(placed, reverse=True):
            new = self._new[number][2]
            if stop > end:
                raise Unplaced
            text, end = text[:start] + new + text[stop:], start
        encoding, _ = tokenize.detect_encoding(io.BytesIO(self._source.code).readline)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(text, self._source.shown, "exec", dont_inherit=True)  # more than ast.parse() asks for
            code = text.replace("\n", self._end).encode(encoding)
        except (SyntaxError, ValueError):
            raise Unplaced from None
        return project.with_code(self._source.path, replace(self._source, code=code).code)

    # -- places -------------------------------------------------------------------------------------------------

    def _place(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        start, end = self._column(first, node.col_offset), self._column(last, node.end_col_offset or 0)
        return self._starts[first] + start, self._starts[last] + end

    def _column(self, line: int, num_bytes: int) -> int:
        """Return a column in characters; Python's own count bytes of UTF-8."""
        return len(self._source.lines[line].encode("utf-8", "replace")[:num_bytes].decode("utf-8", "replace"))

    def _lines(self, statement: ast.stmt) -> tuple[int, int]:
        """Return the first and the last line of a statement that has them for itself, counted from 0.

        Raises:
            Unplaced: it has not.
        """
        start, stop = self._place(statement)
        first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
        behind = self._source.lines[last][stop - self._starts[last] :].strip()
        if self._text[self._starts[first] : start].strip() or (behind and not behind.startswith("#")):
            raise Unplaced
        return first, last

    def _indent(self, line: int) -> str:
        text = self._source.lines[line]
        return text[: len(text) - len(text.lstrip())]

    def _inside_string(self, statement: ast.stmt, line: int) -> bool:
        strings = [each for each in ast.walk(statement) if isinstance(each, ast.Constant | ast.JoinedStr)]
        return any(each.lineno - 1 < line <= (each.end_lineno or 0) - 1 for each in strings)

    def _tokens(self, text: str) -> list[tokenize.TokenInfo]:
        try:
            return list(tokenize.generate_tokens(io.StringIO(f"({text}\n)").readline))
        except (tokenize.TokenError, SyntaxError):  # a block: its lines are not those of an expression
            return list(tokenize.generate_tokens(io.StringIO(text + "\n").readline))


def operand(changes: TextChanges, node: ast.expr) -> str:
    """Return an expression as it is written, in brackets where `.method()` behind it would mean a part of it."""
    text = changes.text(node)
    whole = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return text if whole and "\n" not in text else f"({text})"


def fresh_name(source: SourceFile, wanted: str) -> str:
    """Return `wanted`, with a number behind it where the file has that name already."""
    there = source.names.bound | {*source.names.imports}
    there |= {each.id for each in ast.walk(source.tree) if isinstance(each, ast.Name)}
    found, number = wanted, 1
    while found in there:
        number += 1
        found = f"{wanted}_{number}"
    return found
