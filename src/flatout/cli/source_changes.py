"""The cures of a report as changes of the script's source: read, not run."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flatout.report.written_changes import ReportedChange, ReportedChanges
from flatout.schema.finding import Finding
from flatout.schema.report import Report
from flatout.schema.run import Run

if TYPE_CHECKING:
    from flatout.edits.reading.project import Project
    from flatout.schema.facts import LoaderFacts

__all__ = ["changes_of", "recorded_loaders", "recorded_project"]

_MOST_FINDINGS = 8
_MOST_FILES = 30  # all of them are parsed, and a page is not worth a long wait


def changes_of(report: Report) -> ReportedChanges:
    """Return how the cures of findings, and the recipe, look in the source; nothing where it cannot be told.

    It cannot where a file is gone or was written to since the recording.
    """
    try:
        project = recorded_project(report.run)
        if project is None:
            return ReportedChanges()
        findings = {}
        for finding in report.findings[:_MOST_FINDINGS]:
            change = next(_cures(project, finding, report), None)
            if change is not None:
                findings[finding] = change
        return ReportedChanges(findings, _recipe(project, report))
    except Exception:  # whatever is odd about the source: the page is worth more than the diffs on it
        return ReportedChanges()


def recorded_loaders(run: Run) -> "tuple[LoaderFacts, ...]":
    """Return what a recording knows of the loaders in files that were not written to since."""
    made = [each for each in run.loaders if each.created_at is not None]
    since = run.header.started_unix_s
    return tuple(each for each in made if each.created_at and Path(each.created_at.file).stat().st_mtime < since)


def recorded_project(run: Run) -> "Project | None":
    """Return the source as it was recorded, None where a file was written to since, or there are too many."""
    from flatout.edits.reading.project import read_project

    here = Path(run.header.working_folder)
    script = here / run.header.script
    if not script.is_file():
        return None
    root = here if (script.parent / "__init__.py").exists() else script.parent
    project = read_project(script, root, here, most_files=_MOST_FILES)
    since = run.header.started_unix_s
    if len(project.sources) >= _MOST_FILES:
        return None
    return project if all(each.path.stat().st_mtime < since for each in project.sources) else None


def _cures(project: "Project", finding: Finding, report: Report) -> Iterator[ReportedChange]:
    """Yield what can be written for a finding: its own edit, then its fixes, with the settings that come first."""
    from flatout.edits.finding_cures import edits_for, tried_edits, write_findings_in
    from flatout.edits.recipe_edits import write_recipe_in
    from flatout.fixes.core.catalog import find_fix
    from flatout.schema.trial import Selection

    if edits_for(finding.code):
        after, _ = write_findings_in(project, [finding], recorded=project)
        yield from _changed(project, after, "In your source (flatout patch --findings writes it)")
        for edit, words, after in tried_edits(project, finding):
            if edit.needs_trial:
                tune = f"flatout tune --also {finding.code}" if edit.on_request else "flatout tune"
                what = f"In your source, not measured yet ({words}, {edit.equivalence}; {tune} tries it)"
                yield from _changed(project, after, what)
    loaders = recorded_loaders(report.run)
    for fix in filter(None, map(find_fix, finding.fixes)):
        for settings in fix.choices(report.run)[:1]:
            selection = Selection(fix.name, settings)
            after, _ = write_recipe_in(project, [selection], loaders, report.breakdown.median_ms / 1e3)
            yield from _changed(project, after, f"{selection.label} in your source, not measured yet")


def _recipe(project: "Project", report: Report) -> ReportedChange | None:
    from flatout.edits.recipe_edits import write_recipe_in

    if report.recipe is None:
        return None
    recipe, loaders = report.recipe, recorded_loaders(report.run)
    step_s = recipe.proof.step_s or report.breakdown.median_ms / 1e3
    after, outcomes = write_recipe_in(project, recipe.selections, loaders, step_s)
    left = [each.label for each in outcomes if not (each.changed or each.there)]
    without = f", without {', '.join(left)}" if left else ""
    return next(_changed(project, after, f"The recipe in your source (flatout patch writes it){without}"), None)


def _changed(before: "Project", after: "Project", what: str) -> Iterator[ReportedChange]:
    from flatout.edits.diff import unified_diff

    pairs = zip(before.sources, after.sources, strict=True)
    text = b"".join(unified_diff(old.code, new.code, old.shown) for old, new in pairs)
    if text:
        yield ReportedChange(what, tuple(text.decode("utf-8", "replace").splitlines()))
