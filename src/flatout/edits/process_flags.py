"""Lines of the script that switch something for the whole process."""

import ast
from collections.abc import Sequence
from functools import partial

import libcst as cst

from flatout.edits.reading.project import Project
from flatout.edits.reading.random_draws import is_of_workers
from flatout.edits.reading.source_file import SourceFile, span
from flatout.edits.rewrite import Unplaced, insert_line
from flatout.edits.written_edit import Context, WrittenEdit, after_head, root, with_changes, with_import
from flatout.fixes.core.edit import AnomalyOff, SwitchLine

__all__ = ["anomaly_off", "no_anomaly_detection", "switch_line"]

_ANOMALY = ("torch.autograd.set_detect_anomaly", "torch.autograd.anomaly_mode.set_detect_anomaly")
_DETECT = ("torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly")


def switch_line(piece: SwitchLine, project: Project, context: Context) -> WrittenEdit:
    """Write a line after the imports of the script, or before the first of them."""
    code = context.code(piece.code)
    wanted = ast.unparse(ast.parse(code))
    if any(ast.unparse(node) == wanted for node in project.script.tree.body):
        return WrittenEdit(project, there=1)
    known = project.calls(piece.stands_for) if piece.stands_for else []
    calls = [each for each in known if not is_of_workers(project, *each)]
    if calls:
        return _changed(project, calls, code)
    mentioned = next((name for name in piece.unless if name in project.mentions), "")
    if mentioned:
        return WrittenEdit(project, left=(f"the code mentions {mentioned}, so it may set this itself: check it there",))
    if piece.first:
        return WrittenEdit(_first(project, code), changed=1)
    project = with_import(project, 0, piece.needs)
    script = project.script
    place = _behind_imports(script, piece.needs)
    if not place:
        said = f"{script.shown} does not import {piece.needs} at its top, so there is no clear place for {code}"
        return WrittenEdit(project, left=(said,))
    return WrittenEdit(project.with_code(script.path, insert_line(script, code, place, after=True).code), changed=1)


def _first(project: Project, code: str) -> Project:
    """Put a line, and the `import os` that it needs, before every other import."""
    script = project.script
    line, after = after_head(script)
    if "os" in script.names.bound:
        raise Unplaced
    if line == 0 or line != _line_of_os(script):
        script = insert_line(script, "import os", line, after=after)
    return project.with_code(script.path, insert_line(script, code, _line_of_os(script), after=True).code)


def _line_of_os(script: SourceFile) -> int:
    named = (node for node in script.tree.body if isinstance(node, ast.Import) and node.names[0].name == "os")
    return next((node.lineno for node in named), 0)


def _behind_imports(script: SourceFile, needs: str) -> int:
    """Return the line of the last import behind `needs`, or of a switch behind that; 0: there is none."""
    line, bound = 0, False
    for node in script.tree.body:
        imports = isinstance(node, ast.Import | ast.ImportFrom)
        bound = bound or (isinstance(node, ast.Import) and root(node) == needs)
        if bound and not imports and not _is_switch(node):
            break
        line = node.lineno if bound else 0
    return line


def _is_switch(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func).startswith(("torch.set_", "os.environ.setdefault", "flatout."))
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("torch.backends.")


def _changed(project: Project, calls: Sequence[tuple[SourceFile, ast.Call]], code: str) -> WrittenEdit:
    """Change the calls that are there already, where they are given a literal."""
    wanted = ast.unparse(ast.parse(code, mode="eval").body)
    argument = ast.unparse(cst_argument(code))
    edits, there, left = [], 0, []
    for source, call in calls:
        value = call.args[0] if len(call.args) == 1 and not call.keywords else None
        if ast.unparse(call) == wanted or (value is not None and ast.unparse(value) == argument):
            there += 1
        elif isinstance(value, ast.Constant):
            edits.append((source, call, partial(_with_value, code=argument)))
        else:
            left.append(source.at(call, f"{ast.unparse(call)} is not given a number in this line: give it {argument}"))
    return WrittenEdit(with_changes(project, edits), len(edits), there, tuple(left))


def cst_argument(code: str) -> ast.expr:
    """Return the first argument of a call."""
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    return call.args[0]


def _with_value(call: cst.Call, code: str) -> cst.Call:
    return call.with_changes(args=[call.args[0].with_changes(value=cst.parse_expression(code))])


# -- anomaly detection ------------------------------------------------------------------------------------------------


def anomaly_off(piece: AnomalyOff, project: Project, context: Context) -> WrittenEdit:
    """Take out the requests for anomaly detection, or make them none."""
    del piece, context
    return no_anomaly_detection(project)


def no_anomaly_detection(project: Project) -> WrittenEdit:
    """Take out the requests for anomaly detection, or make them none."""
    calls, lines, there, left = [], [], 0, []
    for source, call in project.calls(*_ANOMALY, *_DETECT):
        detect = source.names.dotted(call.func) in _DETECT
        value = next((each.value for each in call.keywords if each.arg in ("mode", "check_nan")), None)
        value = call.args[0] if call.args and not detect else value
        if not detect and not isinstance(value, ast.Constant):
            left.append(source.at(call, f"{ast.unparse(call)} is not given True in this line: give it False"))
        elif not detect and isinstance(value, ast.Constant) and not value.value:
            there += 1
        elif detect:
            calls.append((source, call, _instead))
        elif _stands_alone(source, call):
            lines.append((source, call.lineno, _nothing))
        else:
            calls.append((source, call, partial(_with_value, code="False")))
    if not (calls or lines or there or left):
        return WrittenEdit(project, left=("no request for anomaly detection is in the source: a library may make it",))
    return WrittenEdit(with_changes(project, calls, lines), len(calls) + len(lines), there, tuple(left))


def _stands_alone(source: SourceFile, call: ast.Call) -> bool:
    """Return whether a call is a whole line, without comments, among others of its block."""
    statement = source.parents[call]
    if not isinstance(statement, ast.Expr) or span(source, call)[0] != span(source, call)[2]:
        return False
    line = source.lines[call.lineno - 1]
    above = source.lines[call.lineno - 2] if call.lineno > 1 else ""
    block = next(
        each for _, each in ast.iter_fields(source.parents[statement]) if isinstance(each, list) and statement in each
    )
    alone = line.strip() == source.lines[call.lineno - 1][span(source, call)[1] : span(source, call)[3]]
    return alone and not above.strip().startswith("#") and len(block) > 1


def _nothing(statement: cst.SimpleStatementLine, module: cst.Module) -> Sequence[cst.BaseStatement]:
    del statement, module
    return ()


def _instead(call: cst.Call) -> cst.BaseExpression:
    """Return `set_detect_anomaly(False)`, which is a context manager, too, in place of `detect_anomaly()`."""
    name = call.func
    if isinstance(name, cst.Attribute):
        named = name.with_changes(attr=cst.Name("set_detect_anomaly"))
        return call.with_changes(func=named, args=[cst.Arg(cst.Name("False"))])
    return call
