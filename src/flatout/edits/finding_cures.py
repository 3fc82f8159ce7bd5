"""Findings carried out on a project: those whose cure is a change of the lines that they name."""

import ast
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial

from flatout.edits.detached_values import detached
from flatout.edits.no_gradients import without_gradients
from flatout.edits.process_flags import no_anomaly_detection
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.recipe_edits import EditOutcome
from flatout.edits.removed_calls import removed
from flatout.edits.rewrite import Unplaced
from flatout.edits.written_edit import WrittenEdit
from flatout.rules.core.catalog import rule_of
from flatout.schema.finding import Finding

__all__ = ["EDITS", "edit_for", "write_findings_in"]

Edit = Callable[[Project, SourceFile, ast.stmt], WrittenEdit]

EDITS: Mapping[str, Callable[..., Edit]] = {
    "anomaly-detection-off": lambda: lambda project, source, statement: no_anomaly_detection(project),
    "no-gradients": lambda: without_gradients,
    "remove-call": lambda *names: partial(removed, names=names),
    "detach": lambda: detached,
}
"""How the statement that a finding names is changed, by the name in `Rule.edit`, from the arguments there.

All leave every weight as it was.
"""


def edit_for(code: str) -> Edit | None:
    """Return the edit that the rule with that code names, None where it names none."""
    rule = rule_of(code)
    return EDITS[rule.edit[0]](*rule.edit[1:]) if rule is not None and rule.edit else None


def write_findings_in(
    project: Project, findings: Sequence[Finding], *, recorded: Project, done_by: Sequence[str] = ()
) -> tuple[Project, tuple[EditOutcome, ...]]:
    """Return the project with the findings' cures written in it as far as that is sure, and what became of each.

    `recorded`: the project as it was when the findings were made; `project` may be changed since. `done_by`: fixes
    that are written anyway; findings that they address are passed over.
    """
    outcomes = []
    for finding in findings:
        if not set(finding.fixes) & set(done_by):
            done = _write(project, finding, recorded)
            project = done.project
            label = f"{finding.code} {finding.name}"
            outcomes.append(EditOutcome(label, done.changed, done.there, done.left, is_fix=False))
    return project, tuple(outcomes)


def _write(project: Project, finding: Finding, recorded: Project) -> WrittenEdit:
    edit, place = edit_for(finding.code), finding.location
    if edit is None or place is None:
        tried = f" `flatout tune` tries {' and '.join(finding.fixes)}." if finding.fixes else ""
        return WrittenEdit(project, left=(finding.message + tried,))
    at = next((at for at, each in enumerate(recorded.sources) if str(each.path) == place.file), None)
    if at is None:
        return WrittenEdit(project, left=(f"its place is in no file that flatout reads. {finding.message}",))
    source = project.sources[at]
    statement = _statement(source, _line_now(recorded.sources[at].lines, source.lines, place.line))
    if statement is None:
        return WrittenEdit(project, left=(f"{source.shown}:{place.line} is not a statement, or has changed already",))
    try:
        return edit(project, source, statement)
    except (Unplaced, RecursionError):
        return WrittenEdit(project, left=(source.at(statement, "the change does not fit on this line"),))


def _line_now(before: Sequence[str], now: Sequence[str], line: int) -> int:
    """Return where a line (from 1) has come to by the changes made so far, 0 where they changed the line itself."""
    for block in SequenceMatcher(None, before, now, autojunk=False).get_matching_blocks():
        if block.a < line <= block.a + block.size:
            return line - block.a + block.b
    return 0


def _statement(source: SourceFile, line: int) -> ast.stmt | None:
    """Return the innermost statement on a line."""
    found = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt) and node.lineno <= line <= _end(node)]
    return max(found, key=lambda node: (node.lineno, -_end(node)), default=None)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
