"""Calls that a loop is better without: their lines taken out."""

import ast
from collections.abc import Sequence

import libcst as cst

from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.rewrite import Unplaced
from flatout.edits.written_edit import WrittenEdit, with_changes

__all__ = ["removed"]


def removed(project: Project, source: SourceFile, statement: ast.stmt, names: Sequence[str]) -> WrittenEdit:
    """Take out the line `statement` where it does nothing but call one of `names` (dotted)."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or source.names.dotted(call.func) not in names:
        wanted = " or ".join(f"{name}()" for name in names)
        return WrittenEdit(project, left=(source.at(statement, f"this line is not a call of {wanted} alone"),))
    above = source.parents[statement]
    block = next(each for _, each in ast.iter_fields(above) if isinstance(each, list) and statement in each)
    how = _nothing if len(block) > 1 else _pass
    return WrittenEdit(with_changes(project, lines=[(source, statement.lineno, how)]), changed=1)


def _nothing(statement: cst.SimpleStatementLine, module: cst.Module) -> Sequence[cst.BaseStatement]:
    del module
    if len(statement.body) != 1:
        raise Unplaced
    return ()


def _pass(statement: cst.SimpleStatementLine, module: cst.Module) -> Sequence[cst.BaseStatement]:
    del module
    if len(statement.body) != 1:
        raise Unplaced
    return (statement.with_changes(body=[cst.Pass()]),)
