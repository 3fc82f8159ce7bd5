"""Edits of the calls that make optimizers."""

import ast
import re
from functools import partial

from flatout.edits.arguments import Given, given, set_argument
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.reading.unpacked_arguments import Held, unpacked, with_item
from flatout.edits.rewrite import OnCall
from flatout.edits.written_edit import Context, WrittenEdit, with_changes
from flatout.fixes.core.edit import OptimizerArgument

__all__ = ["optimizer_argument", "optimizer_calls"]

_OPTIMIZER = re.compile(r"torch\.optim\.((?!lr_scheduler|swa_utils)[a-z_]+\.)?[A-Z]\w*")
_OTHER = {"fused": "foreach", "foreach": "fused"}


def optimizer_calls(project: Project) -> list[tuple[SourceFile, ast.Call, str]]:
    """Return the calls that make one of torch's own optimizers, with its name."""
    found = [(source, call, source.names.dotted(call.func)) for source, call in project.nodes(ast.Call)]
    return [(source, call, name.rpartition(".")[2]) for source, call, name in found if _OPTIMIZER.fullmatch(name)]


def optimizer_argument(piece: OptimizerArgument, project: Project, context: Context) -> WrittenEdit:
    """Ask every optimizer that has it for an implementation."""
    name = str(context.settings["implementation"])
    edits: list[tuple[SourceFile, ast.Call, OnCall]] = []
    there, left = 0, []
    reasons = (why for code, why in piece.not_beside.items() if code in project.mentions and name == "fused")
    beside = next(reasons, "")
    sparse = "sparse=True" in project.mentions
    for source, call, kind in optimizer_calls(project):
        held = unpacked(source, call)
        found = _given(call, name, held)[0]
        if found is Given.EQUAL:
            there += 1
        elif kind not in piece.kinds.get(name, ()):
            left.append(source.at(call, f"{kind} has no {name} implementation, so it stays unchanged"))
        elif beside or sparse:
            left.append(
                source.at(call, beside or "an embedding is sparse, and its gradients have no such implementation")
            )
        elif reason := _against(call, name, held, piece.refuses):
            left.append(source.at(call, reason))
        elif found is Given.UNPACKED:
            edits.append((source, call, partial(with_item, name=name, code="True")))
        else:
            edits.append((source, call, partial(set_argument, name=name, code="True")))
    if not (edits or there or left):
        left.append(
            "no call of torch's own optimizers is in the source: a library or a name computed at run time makes it"
        )
    return WrittenEdit(with_changes(project, edits), len(edits), there, tuple(left))


def _given(call: ast.Call, name: str, held: Held | None) -> tuple[Given, ast.expr | None]:
    """Return what `call` says of `name`, in its `**` also, where it is known what that holds."""
    found, value = given(call, name, "True")
    if found is not Given.ELSEWHERE or value is not None or held is None:
        return found, value
    codes = {each.get(name) for each in held}
    return (Given.NOTHING if codes == {None} else Given.EQUAL if codes == {"True"} else Given.UNPACKED), None


def _against(call: ast.Call, name: str, held: Held | None, refuses: tuple[str, ...]) -> str:
    found, value = _given(call, name, held)
    if found is Given.ELSEWHERE:
        where = ast.unparse(value) if value is not None else "held by *args or **kwargs"
        return f"{name} is {where}, whose value is not in this line: set it to True where it comes from"
    other = _OTHER[name]
    if _given(call, other, held)[0] in (Given.EQUAL, Given.ELSEWHERE, Given.UNPACKED):
        return f"it requests {other} already, and torch accepts only one of them"
    names = [each.arg for each in call.keywords] + [each for way in held or () for each in way]
    asked = next((each for each in names if each in refuses), "")
    return f"it is given {asked}, which cannot be combined with {name}" if asked else ""
