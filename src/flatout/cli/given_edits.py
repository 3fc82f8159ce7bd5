"""Edits of the source that `flatout tune` tries: diffs from the command line, and changes that cure findings."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flatout.errors import UsageError
from flatout.schema.files import read_whole

if TYPE_CHECKING:
    from flatout.engine.process.target import Target
    from flatout.engine.trial.edit_candidates import ProposedEdit
    from flatout.schema.report import Report
    from flatout.schema.trial import Selection

__all__ = ["named_alone", "named_besides", "proposed_edits", "read_edits"]

_DIFFS = (".diff", ".patch")
_LARGEST_BYTES = 1024 * 1024
_MOST_NAME = 60


def named_alone(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what of the words of `--only` names fixes, and what names diffs: files, or what ends as diffs do.

    Raises:
        UsageError: one is a number of ranks.
    """
    from flatout.cli.ranks import require_names

    diffs = tuple(word for word in words if _is_diff(word))
    names = tuple(word for word in words if word not in diffs)
    require_names("--only", names)
    return names, diffs


def named_besides(also: Sequence[str], edits: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of `--also`, names of fixes, and those of `--edit`, files with diffs.

    Raises:
        UsageError: one stands at the other option, or is a number of ranks.
    """
    from flatout.cli.ranks import require_names

    diff = next((word for word in also if Path(word).suffix in _DIFFS), "")
    if diff:
        raise UsageError(f"--also {diff}: this option takes names of fixes.", advice=f"For a diff: --edit {diff}")
    name = next((word for word in edits if not _is_diff(word)), "")
    if name:
        raise UsageError(
            f"--edit {name}: this option takes files with diffs, and there is no such file.",
            f"The working folder is {Path.cwd()}.",
            f"For a fix: --also {name}",
        )
    require_names("--also", also)
    return tuple(also), tuple(edits)


def _is_diff(word: str) -> bool:
    return Path(word).suffix in _DIFFS or Path(word).is_file()


def read_edits(diffs: Sequence[str], target: "Target") -> "tuple[Selection, ...]":
    """Return the edits that these diffs are, as candidates, each under the name of its file.

    Raises:
        UsageError: one cannot be read, or does not fit the files as they are.
    """
    from flatout.edits.given_diff import given_edit

    diffs = tuple(dict.fromkeys(diffs))
    names = [Path(diff).name for diff in diffs]
    shown = [name if names.count(name) == 1 else diff for name, diff in zip(names, diffs, strict=True)]
    return tuple(
        given_edit(_text(diff), _printable(name), target.folders).selection
        for name, diff in zip(shown, diffs, strict=True)
    )


def _text(diff: str) -> str:
    try:
        return read_whole(Path(diff), _LARGEST_BYTES).decode()
    except FileNotFoundError:
        raise UsageError(f"There is no file {diff}.", f"The working folder is {Path.cwd()}.") from None
    except OSError as error:
        raise UsageError(f"{diff} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise UsageError(f"{diff} is not a diff: it is not text in UTF-8 ({error}).") from None


def _printable(name: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown if len(shown) <= _MOST_NAME else f"...{shown[-_MOST_NAME:]}"


def proposed_edits(report: "Report", target: "Target", only: frozenset[str]) -> "list[ProposedEdit]":
    """Return the changes of the source that cure findings of `report`; where `only` names any, of those rules alone.

    None where the source was written to since the recording, or is odd in another way: a tune is worth more than they.
    """
    from flatout.cli.source_changes import recorded_project
    from flatout.edits.finding_cures import edits_for_findings
    from flatout.engine.trial.edit_candidates import ProposedEdit

    findings = [finding for finding in report.findings if not only or finding.code in only]
    try:
        project = recorded_project(report.run)
        found = edits_for_findings(project, findings, target.folders) if project is not None else []
    except Exception:  # whatever is odd about the source
        return []
    return [
        ProposedEdit(
            selection=each.edit.selection,
            finding=each.finding,
            equivalence=each.equivalence,
            weakest=each.weakest,
            on_request=each.on_request,
        )
        for each in found
    ]
