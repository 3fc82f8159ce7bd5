"""What came of writing one piece of a fix: the project as it is then, and what was left out."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile, span
from flatout.edits.reading.training_loaders import LoaderCall
from flatout.edits.rewrite import OnBlock, OnCall, OnStatement, SourceChanges, Unplaced, insert_line, rewritten

__all__ = ["Context", "WrittenEdit", "after_head", "root", "with_changes", "with_import"]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a piece may look at besides the code: the settings of the fix, the loaders, and how long a step takes."""

    settings: Mapping[str, object]
    loaders: tuple[LoaderCall, ...]  # as they are in the project before any change, in the order of the text
    step_s: float = 0.0  # 0: not known
    named: frozenset[str] = frozenset()  # settings that the recipe names itself; the others have their defaults

    def code(self, template: str, **more: str) -> str:
        """Return a piece of code with the settings in it."""
        return template.format(**{name: str(value) for name, value in self.settings.items()}, **more)


@dataclass(frozen=True)
class WrittenEdit:
    """The project after a piece: how many places were changed, how many had it already, and what was left out."""

    project: Project
    changed: int = 0
    there: int = 0
    left: tuple[str, ...] = ()


def with_changes(
    project: Project,
    calls: Sequence[tuple[SourceFile, ast.Call, OnCall]] = (),
    lines: Sequence[tuple[SourceFile, int, OnStatement]] = (),
    blocks: Sequence[tuple[SourceFile, int, OnBlock]] = (),
) -> Project:
    """Return the project with these changes.

    Raises:
        Unplaced: one of them has no place, or two want the same one.
    """
    changes: dict[int, SourceChanges] = {}
    for source, call, on_call in calls:
        changes.setdefault(project.sources.index(source), SourceChanges()).calls[span(source, call)] = on_call
    for source, line, on_line in lines:
        of_file = changes.setdefault(project.sources.index(source), SourceChanges()).lines
        if line in of_file:
            raise Unplaced
        of_file[line] = on_line
    for source, line, on_block in blocks:
        changes.setdefault(project.sources.index(source), SourceChanges()).blocks[line] = on_block
    for at, each in changes.items():
        project = project.with_code(project.sources[at].path, rewritten(project.sources[at], each).code)
    return project


def with_import(project: Project, at: int, module: str) -> Project:
    """Return the project in which file number `at` has `import module`, before the first import of torch.

    Raises:
        Unplaced: the name stands for something else there.
    """
    source = project.sources[at]
    if source.names.imports.get(module) == module and any(_imports(node, module) for node in source.tree.body):
        return project
    if module in source.names.bound:
        raise Unplaced
    line, after = _before_torch(source)
    return project.with_code(source.path, insert_line(source, f"import {module}", line, after=after).code)


def _imports(node: ast.stmt, module: str) -> bool:
    return isinstance(node, ast.Import) and any(
        (each.asname or each.name.split(".")[0]) == module for each in node.names
    )


def _before_torch(source: SourceFile) -> tuple[int, bool]:
    """Return the line of the statement to stand next to, and whether to stand after it."""
    found = next((node.lineno for node in source.tree.body if root(node).startswith("torch")), None)
    return after_head(source) if found is None else (found, False)


def after_head(source: SourceFile) -> tuple[int, bool]:
    """Return the place behind docstring and `from __future__` imports, in the same way."""
    body, last = source.tree.body, 0
    for at, node in enumerate(body):
        docstring = at == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and root(node) != "__future__":
            return (last, True) if last else (node.lineno, False)
        last = node.lineno
    return last, True


def root(node: ast.stmt) -> str:
    """Return the package that an import begins with, "" for other statements."""
    if isinstance(node, ast.ImportFrom) and not node.level:
        return (node.module or "").split(".")[0]
    return node.names[0].name.split(".")[0] if isinstance(node, ast.Import) else ""
