"""`flatout patch`: the recipe as changes of the script's own source."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flatout.cli.options import given_recipe_option
from flatout.cli.script_command import ScriptCommand
from flatout.cli.word_order import behind_the_script
from flatout.errors import FlatoutError, UsageError
from flatout.schema.recipe import Recipe

if TYPE_CHECKING:
    from flatout.edits.reading.project import Project
    from flatout.edits.recipe_edits import EditOutcome
    from flatout.engine.process.target import Target
    from flatout.schema.facts import LoaderFacts
    from flatout.schema.report import Report
    from flatout.schema.trial import Selection

__all__ = ["patch"]

NOTHING_WRITTEN = 3


@click.command(
    "patch",
    cls=ScriptCommand,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
    options_metavar="[OPTIONS]",
)
@given_recipe_option
@click.option("--only", multiple=True, metavar="FIX", help="Write only this fix of the recipe; may be given again.")
@click.option("--findings", is_flag=True, help="Write what cures findings of the newest recording, too.")
@click.option("--write", is_flag=True, help="Change the files, and keep the originals as FILE.orig.")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT")
def patch(words: tuple[str, ...], recipe_file: Path | None, only: tuple[str, ...], findings: bool, write: bool) -> int:
    """Write flatout.toml into the script's own source, as a diff.

    SCRIPT is `train.py` or `-m package.module`; it is read, not run. stdout is the diff alone, for `git apply` or
    `patch -p1`; what cannot be written surely is said on stderr, with the reason. Exit code 3: nothing can be.
    With `--findings` a recipe is not needed: what `flatout diagnose` found is cured where a change of its line does it.
    """
    from flatout.edits.recipe_edits import write_recipe_in
    from flatout.edits.written_diffs import with_edited_files
    from flatout.engine.process.target import parse_target

    _check_options(words)
    target, project = parse_target(words), _project(words)
    if only and findings:
        raise UsageError("--only names fixes of a recipe, --findings uses the newest recording.", "Use one of the two.")
    report = _diagnosed(target) if findings else None
    recipe, path, selections = _recipe(target, recipe_file, only, needed=not findings)
    project = with_edited_files(project, selections, target.folders)
    loaders, step_s = _recorded(target, recipe)
    patched, outcomes = write_recipe_in(project, selections, loaders, step_s)
    if report is not None:
        patched, found = _cure(project, patched, report, [each.fix for each in selections])
        outcomes = (*outcomes, *found)
    _account(project, outcomes, path if recipe is not None else None)
    if patched.sources != project.sources:
        _check_unchanged(recipe, target, refuse=write)
        _write(project, patched) if write else _show(project, patched)
    return 0 if any(each.changed or each.there for each in outcomes) else NOTHING_WRITTEN


def _check_options(words: Sequence[str]) -> None:
    """Refuse options of `patch` that stand behind the script: they are taken for the script's, and it is not run.

    Raises:
        UsageError: there are some.
    """
    late = [word for word in words[1:] if word.partition("=")[0] in ("--write", "--findings", "--only", "--recipe")]
    if late:
        raise UsageError(
            behind_the_script(late),
            "What follows a script is its own.",
            "Put options of `flatout patch` before it; it is not run, so its own can be left out.",
        )


def _recipe(
    target: "Target", recipe_file: Path | None, only: Sequence[str], *, needed: bool
) -> "tuple[Recipe | None, Path, list[Selection]]":
    """Return the recipe, where it lies, and which of its fixes are to be written; none where none is `needed`."""
    from flatout.cli.run import chosen
    from flatout.engine.provenance import require_same_script
    from flatout.engine.recipe import find_recipe, read_recipe

    try:
        path = find_recipe(target, recipe_file)
    except UsageError:
        if needed or recipe_file is not None:
            raise
        return None, Path(), []
    recipe = read_recipe(path)
    require_same_script(recipe, path, target)
    return recipe, path, [each.selection for each in chosen(recipe, only, path)]


def _diagnosed(target: "Target") -> "Report":
    """Return what the newest recording of the script says.

    Raises:
        UsageError: there is none.
    """
    from flatout.cli.recordings import find_recording, read_report

    return read_report(find_recording(Path(".flatout") / target.slug))


def _cure(
    project: "Project", patched: "Project", report: "Report", written: Sequence[str]
) -> "tuple[Project, tuple[EditOutcome, ...]]":
    """Write the cures of findings; in files that were changed since the recording, a line may be another one."""
    from flatout.edits.finding_cures import write_findings_in

    began = report.run.header.started_unix_s
    old = [each.shown for each in project.sources if each.path.stat().st_mtime > began]
    if old:
        raise UsageError(
            f"{', '.join(old)} {'has' if len(old) == 1 else 'have'} changed since the newest recording.",
            "Its findings may name the wrong lines now.",
            "Run `flatout diagnose` again.",
        )
    found = [each for each in report.findings if not each.code.startswith("MS")]
    return write_findings_in(patched, found, recorded=project, done_by=written)


def _project(words: Sequence[str]) -> "Project":
    """Read the script, or the file of the module below the working folder.

    Raises:
        UsageError: it is none whose source can be read.
    """
    from flatout.edits.reading.project import read_project

    here = Path.cwd()
    if words[0] == "-m":
        inner = here.joinpath(*words[1].split("."))
        places = (inner.with_name(inner.name + ".py"), inner / "__main__.py")
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            raise UsageError(
                f"There is no file of the module {words[1]} below {here}.", "Only your own files are edited."
            )
        return read_project(found, here, here)
    script = Path(words[0])
    if not script.is_file():
        raise UsageError(f"{script} is not a file.", "`flatout patch` edits one script.", "Give the script itself.")
    return read_project(script, script.resolve().parent, here)


def _recorded(target: "Target", recipe: Recipe | None) -> "tuple[tuple[LoaderFacts, ...], float]":
    """Return what the newest recording of the script in .flatout knows of its loaders, and the seconds of a step.

    Nothing where there is none. Of files that were written to since, lines may mean something else.
    """
    from flatout.analysis.breakdown import account
    from flatout.cli.recordings import find_recording, recorded
    from flatout.cli.source_changes import recorded_loaders
    from flatout.schema.codec import read_run

    try:
        file = find_recording(Path(".flatout") / target.slug)
        with recorded(file):
            run = read_run(file)
            step_s = recipe.proof.step_s if recipe is not None else 0.0
            return recorded_loaders(run), step_s or account(run).median_ms / 1e3
    except (FlatoutError, OSError):
        return (), 0.0


def _check_unchanged(recipe: Recipe | None, target: "Target", *, refuse: bool) -> None:
    """Warn of a script that is not the one that the recipe was proven with, or refuse to write it.

    Raises:
        UsageError: it has changed, and is to be written.
    """
    from flatout.engine.process.target import script_digest

    proven, now = recipe.proof.script_digest if recipe is not None else "", script_digest(target)
    if not proven or proven == now:
        return
    fact = f"{target.name} has changed since the recipe was proven"
    if refuse:
        raise UsageError(
            f"{fact}.",
            "The measurements belong to an earlier version of the script.",
            "Run `flatout tune` again, or take the diff without --write.",
        )
    _say(f"warning: {fact}")


def _account(project: "Project", outcomes: "Sequence[EditOutcome]", path: Path | None) -> None:
    """Say what became of each fix and finding; `path`: of the recipe."""
    for note in project.notes:
        _say(f"warning: {note}")
    if not outcomes:
        _say(f"{f'{path} holds no fix' if path else 'nothing was found'}: there is nothing to write")
    for each in outcomes:
        places = f"{each.changed} place{'s' if each.changed != 1 else ''} to change" if each.changed else ""
        there = "already in the source" if each.there and not each.changed else ""
        told = places or there or ("not written; `flatout run` keeps doing it" if each.is_fix else "not written")
        _say(f"{each.label}: {told}")
        for reason in each.left:
            _say(f"  {reason}")


def _show(project: "Project", patched: "Project") -> None:
    from flatout.edits.diff import unified_diff

    sys.stdout.flush()
    for old, new in zip(project.sources, patched.sources, strict=True):
        diff = unified_diff(old.code, new.code, old.shown)
        sys.stdout.buffer.write(_plain_to_see(diff) if sys.stdout.isatty() else diff)
    sys.stdout.buffer.flush()


def _plain_to_see(diff: bytes) -> bytes:
    """Return a diff for a terminal: a control character in a line of the script is shown, and does nothing."""
    from flatout.report.visible import visible

    lines = diff.decode("utf-8", "replace").split("\n")
    return "\n".join(line if line.isprintable() else visible(line.replace("\t", "    ")) for line in lines).encode()


def _write(project: "Project", patched: "Project") -> None:
    from flatout.edits.written_files import write_project

    for name, backup in write_project(project, patched):
        _say(f"{name} is changed; the original is in {backup.name}")


def _say(text: str) -> None:
    from flatout.report.visible import visible

    click.echo(f"flatout: {visible(text)}", err=True)
