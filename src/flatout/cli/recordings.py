"""Recordings on disk: where they are, and what today's rules make of them."""

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from flatout.errors import BadRecording, FlatoutError, UsageError
from flatout.schema.finding import Ceiling
from flatout.schema.report import Report

__all__ = ["find_recording", "find_recordings", "read_report", "recorded"]

_FAR_AHEAD_S = 1e11  # the year 5138

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

    if folder.exists() and not folder.is_dir():  # a file, or what the reading refuses
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
    from flatout.schema.codec import RUN_FILE

    for depth in range(DEEPEST + 1):
        for parts in folder.glob("/".join(["*"] * depth + ["parts"])):
            ordered = any((parts.parent / f"order-{mode}.json").exists() for mode in ("timed", "whole"))
            linked = parts.is_symlink() or parts.parent.is_symlink()  # to what is no recording of this folder
            if ordered and not linked and not os.path.lexists(parts.parent / RUN_FILE):
                _recover(parts.parent)


def _recover(folder: Path) -> None:
    """Put one recording together.

    Raises:
        BadRecording: it cannot be written where its parts lie.
    """
    from flatout.engine.diagnose import recover

    try:
        recover(folder)
    except OSError as error:
        raise BadRecording(
            f"The recording in {folder} cannot be read as a whole ({error.strerror or error})."
        ) from None


_DAMAGE = (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What numbers raise that no training has, wherever they are used."""


@contextlib.contextmanager
def recorded(file: Path) -> Iterator[None]:
    """Blame a recording for what its numbers raise: whoever wrote it may have been anybody.

    Raises:
        BadRecording: something was raised.
    """
    try:
        yield
    except FlatoutError:
        raise
    except _DAMAGE as error:
        raise BadRecording(
            f"{file} holds impossible numbers ({type(error).__name__}: {str(error)[:200]}).",
            "flatout cannot report on it.",
            "Record it again; if nobody changed the file, please report this.",
        ) from error


def read_report(file: Path) -> Report:
    """Return what today's account and rules make of a recording.

    Raises:
        BadRecording: it is damaged, or holds numbers that no training has.
    """
    with recorded(file):
        return _read_report(file)


def _read_report(file: Path) -> Report:
    from flatout.analysis.breakdown import account
    from flatout.engine.offered_fixes import with_offered_fixes
    from flatout.rules.core.find import examine
    from flatout.schema.codec import read_run

    run = read_run(file)
    _require_finite(replace(run, losses=(), steps=(), ceilings=()), "Run")  # a loss may be anything
    if not 0 <= run.header.started_unix_s < _FAR_AHEAD_S:
        raise ValueError(f"Header.started_unix_s is {run.header.started_unix_s:g}")
    breakdown = account(run)
    headroom = run.ceilings or _headroom(file.parent)
    found = examine(run, breakdown, headroom)
    shown = Report(
        run=replace(run, notes=(*run.notes, *found.notes)),
        breakdown=breakdown,
        headroom=headroom,
        findings=with_offered_fixes(found.findings, run),
        folder=str(file.parent),
    )
    return _with_trials(shown, file.parent)


def _require_finite(value: object, place: str) -> None:
    """Refuse what is no number where times and counts are.

    Raises:
        ValueError: there is one; the message names its place.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{place} is {value}")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            _require_finite(getattr(value, each.name), f"{type(value).__name__}.{each.name}")
    elif isinstance(value, Mapping):
        _require_finite(tuple(value.values()), place)
    elif isinstance(value, tuple) and not hasattr(value, "_fields"):
        for item in value:
            _require_finite(item, place)


def _with_trials(shown: Report, folder: Path) -> Report:
    """Return `shown` with what a tune has left beside the recording, as far as it came."""
    from flatout.engine.trial.journal import STATE_FILE, TRIALS_FILE, TrialJournal, read_state
    from flatout.schema.trial import Verdict

    there = [folder / name for name in (TRIALS_FILE, STATE_FILE) if os.path.lexists(folder / name)]
    odd = [each.name for each in there if not _is_plain(each)]
    if odd:
        note = f"{' and '.join(odd)} beside the recording {'were' if len(odd) > 1 else 'was'} not written by flatout"
        return replace(shown, run=replace(shown.run, notes=(*shown.run.notes, note)))
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
    return replace(shown, trials=trials, recipe=state.recipe, confirmation=state.confirmation, untried=state.untried)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _headroom(folder: Path) -> tuple[Ceiling, ...]:
    """Return the ceilings that were measured with the recording, none when the report beside it is gone."""
    from flatout.report.json import REPORT_FILE, from_json
    from flatout.schema.files import read_whole

    try:
        document = from_json(read_whole(folder / REPORT_FILE).decode())
    except (OSError, UnicodeDecodeError, BadRecording):
        return ()
    return tuple(
        Ceiling(**{name: row[name] for name in ("ceiling", "median_ms", "speedup")}) for row in document["headroom"]
    )
