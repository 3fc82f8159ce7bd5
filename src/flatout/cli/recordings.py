"""Recordings on disk: where they are, and what today's rules make of them."""

from dataclasses import replace
from pathlib import Path

from flatout.errors import BadRecording, UsageError
from flatout.schema.finding import Ceiling
from flatout.schema.report import Report

__all__ = ["find_recording", "find_recordings", "read_report"]

DEEPEST = 4
"""Levels of folders searched below the one named: `.flatout/<script>/<time>`, seen from the project, is three."""


def find_recording(folder: Path) -> Path:
    """Return the recording at `folder`, or the newest of those nearest below it.

    Raises:
        UsageError: there is none.
    """
    return max(find_recordings(folder), key=lambda file: (file.stat().st_mtime, str(file)))


def find_recordings(folder: Path) -> list[Path]:
    """Return the recording at `folder`, or all of those nearest below it, the oldest first.

    Raises:
        UsageError: there is none.
    """
    from flatout.schema.codec import RUN_FILE

    if folder.is_file():
        return [folder]
    _recover_killed(folder)
    for depth in range(DEEPEST + 1):
        found = list(folder.glob("/".join(["*"] * depth + [RUN_FILE])))
        if found:
            return sorted(found, key=lambda file: (file.stat().st_mtime, str(file)))
    raise UsageError(
        f"{folder} holds no recording: there is no {RUN_FILE} in it or {DEEPEST} levels below it.",
        advice="`flatout diagnose SCRIPT` makes one.",
    )


def _recover_killed(folder: Path) -> None:
    """Put together the recordings at or below `folder` that a killed diagnosis left in parts."""
    from flatout.engine.diagnose import recover
    from flatout.schema.codec import RUN_FILE

    for depth in range(DEEPEST + 1):
        for parts in folder.glob("/".join(["*"] * depth + ["parts"])):
            ordered = any((parts.parent / f"order-{mode}.json").exists() for mode in ("timed", "whole"))
            if ordered and not (parts.parent / RUN_FILE).exists():
                recover(parts.parent)


def read_report(file: Path) -> Report:
    """Return what today's account and rules make of a recording."""
    from flatout.analysis.breakdown import account
    from flatout.rules.find import examine
    from flatout.schema.codec import read_run

    run = read_run(file)
    breakdown = account(run)
    headroom = run.ceilings or _headroom(file.parent)
    found = examine(run, breakdown, headroom)
    shown = Report(
        run=replace(run, notes=(*run.notes, *found.notes)),
        breakdown=breakdown,
        headroom=headroom,
        findings=found.findings,
        folder=str(file.parent),
    )
    return _with_trials(shown, file.parent)


def _with_trials(shown: Report, folder: Path) -> Report:
    """Return `shown` with what a tune has left beside the recording, as far as it came."""
    from flatout.engine.journal import TrialJournal, read_state
    from flatout.schema.trial import Verdict

    try:
        trials = TrialJournal(folder).read()
    except (OSError, BadRecording) as error:
        return replace(shown, run=replace(shown.run, notes=(*shown.run.notes, str(error))))
    state = read_state(folder)
    if state is None:
        return replace(shown, trials=trials)
    if state.finished and state.recipe is None:  # the journal is older than the confirmation
        reason = "the recipe as a whole was not confirmed"
        trials = tuple(
            replace(each, verdict=Verdict.UNDECIDED, reason=reason) if each.verdict is Verdict.KEPT else each
            for each in trials
        )
    return replace(shown, trials=trials, recipe=state.recipe, confirmation=state.confirmation)


def _headroom(folder: Path) -> tuple[Ceiling, ...]:
    """Return the ceilings that were measured with the recording, none when the report beside it is gone."""
    from flatout.report.json import REPORT_FILE, from_json

    try:
        document = from_json((folder / REPORT_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, BadRecording):
        return ()
    return tuple(
        Ceiling(**{name: row[name] for name in ("ceiling", "median_ms", "speedup")}) for row in document["headroom"]
    )
