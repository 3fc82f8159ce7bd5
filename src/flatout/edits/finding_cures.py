"""Findings carried out on a project: those whose cure is a change of the lines that they name."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath

from flatout.edits.detached_values import detached
from flatout.edits.given_diff import edit_of
from flatout.edits.line_moves import line_now
from flatout.edits.no_gradients import without_gradients
from flatout.edits.process_flags import no_anomaly_detection
from flatout.edits.reading.project import Project
from flatout.edits.reading.source_file import SourceFile
from flatout.edits.recipe_edits import EditOutcome
from flatout.edits.removed_calls import removed
from flatout.edits.rewrite import Unplaced
from flatout.edits.written_edit import WrittenEdit
from flatout.fixes.source.source_edit import SourceEdit, read_text
from flatout.rules.core.catalog import rule_of
from flatout.rules.core.rule import Rule
from flatout.schema.finding import Finding

__all__ = ["EDITS", "edit_for", "edit_in_words", "edits_for_findings", "write_findings_in"]

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

_IN_WORDS: Mapping[str, Callable[..., str]] = {
    "no-gradients": lambda: "torch.no_grad() around the validation",
    "remove-call": lambda *names: f"{' or '.join(names)} left out",
    "detach": lambda: "kept without its graph",
}
"""What an edit does, for those that `flatout tune` tries unasked; anomaly detection may be on because it is wanted."""


def edits_for_findings(
    project: Project, findings: Sequence[Finding], folders: Sequence[Path]
) -> list[tuple[Finding, SourceEdit]]:
    """Return for each finding whose line can be changed the edit that does it, named as seen from `folders`.

    Every edit is one of the project as it is: each is tried by itself.
    """
    found: dict[str, tuple[Finding, SourceEdit]] = {}
    for finding in findings:
        name = _name(finding)
        if name:
            after = _write(project, finding, project).project
            texts = dict(_texts(project, after, folders))
            if texts:
                edit = edit_of(name, texts)
                found.setdefault(edit.diff, (finding, edit))
    return list(found.values())


def _name(finding: Finding) -> str:
    """Return what the edit of a finding is called, "" where none is tried."""
    rule = rule_of(finding.code)
    words = edit_in_words(rule) if rule is not None else ""
    if not words or finding.location is None:
        return ""
    place = f"{PurePath(finding.location.file).name}:{finding.location.line}"
    return f"{finding.code} {words} ({place})"


def edit_in_words(rule: Rule) -> str:
    """Return what the edit does that `flatout tune` tries for findings of a rule, "" where it tries none."""
    words = _IN_WORDS.get(rule.edit[0]) if rule.edit else None
    return words(*rule.edit[1:]) if words is not None else ""


def _texts(before: Project, after: Project, folders: Sequence[Path]) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """Yield the files that differ, by their names; a file below none of `folders` has none."""
    for old, new in zip(before.sources, after.sources, strict=True):
        if old.code != new.code:
            folder = next(each.resolve() for each in folders if old.path.is_relative_to(each.resolve()))
            read_text(old.code)
            yield old.path.relative_to(folder).as_posix(), (old.code, new.code)


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
    statement = _statement(source, line_now(recorded.sources[at].lines, source.lines, place.line))
    if statement is None:
        return WrittenEdit(project, left=(f"{source.shown}:{place.line} is not a statement, or has changed already",))
    try:
        return edit(project, source, statement)
    except (Unplaced, RecursionError):
        return WrittenEdit(project, left=(source.at(statement, "the change does not fit on this line"),))


def _statement(source: SourceFile, line: int) -> ast.stmt | None:
    """Return the innermost statement on a line."""
    found = [node for node in ast.walk(source.tree) if isinstance(node, ast.stmt) and node.lineno <= line <= _end(node)]
    return max(found, key=lambda node: (node.lineno, -_end(node)), default=None)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
