"""Networks that are apart: made by different calls, and neither is a part of the other, as far as the source shows."""

import ast

from flatout.edits.reading.dataflow import Flow, Origin
from flatout.edits.reading.gradient_flow import last_name
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile

__all__ = ["are_apart"]

_Placed = tuple[SourceFile, ast.expr]


def are_apart(project: Project, one: _Placed, other: _Placed) -> bool:
    """Return whether two expressions stand for networks that are seen to be made apart from each other."""
    flow = Flow(project)
    ours, others = flow.origins(*one), flow.origins(*other)
    if not ours or not others or {call for _, call in ours} & {call for _, call in others}:
        return False
    return not _is_part(ours, others, other[1]) and not _is_part(others, ours, one[1])


def _is_part(whole: list[Origin], part: list[Origin], name: ast.expr) -> bool:
    """Return whether what the calls `part` make, called `name`, may be a part of what `whole` make."""
    made = {last_name(call.func) for _, call in whole}
    around = [each for source, call in part for each in source.above(call) if isinstance(each, ast.ClassDef)]
    if any(each.name in made for each in around):
        return True
    given = [node for _, call in whole for each in (*call.args, *call.keywords) for node in ast.walk(each)]
    return last_name(name) in [last_name(node) for node in given if isinstance(node, ast.Name | ast.Attribute)]
