"""The measurements of each rule: the last section of its page, from `measured.toml` (`scripts/measured`)."""

import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from flatout.units import format_ms, format_ratio, format_share

__all__ = ["measured_section", "threshold_tables"]

_MACHINE = "2 shared cores of an AMD EPYC, torch 2.13.0"
_WIDTH = 119  # as the docstrings are written
_NOTHING = "No recording of this fault is kept here yet."


def measured_section(code: str, page: str) -> str:
    """Return the section of the rule `code`: predicted speed-ups, and measured gains of the repair.

    `page`: the rule's docstring; where it holds a measured figure and there are no other results, there is no section.
    """
    rows = _table().get(code, ())
    planted = [row for row in rows if "gain" in row]
    blocks = [_planted(planted)] if planted else []
    blocks += [_recorded(row) for row in rows if "device" in row]
    if not blocks and not ("Measured" in page or "n=" in page):
        blocks = [_NOTHING]
    return "## Measured\n\n" + "\n\n".join(blocks) if blocks else ""


def threshold_tables(code: str) -> str:
    """Return what the rule `code` would find with other thresholds, "" where nothing was tried."""
    curves = [row for row in _table().get(code, ()) if "threshold" in row]
    return _thresholds(curves) if curves else ""


def _table() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    return tomllib.loads(resources.files("flatout.rules.core").joinpath("measured.toml").read_text(encoding="utf-8"))


def _planted(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the planted scripts in which this rule's finding came first."""
    dates = " and ".join(sorted({str(row["on"]) for row in rows}))
    head = (
        "Each row is a script of `benchmarks/planted` with only this fault, and a twin without it, where this rule was "
        "the first finding. *At most* is the speed-up that the finding predicted for this cause alone, *without the "
        f"fault* how much faster the twin really trained (one diagnosis each, {_MACHINE}, {dates})."
    )
    lines = [f"| {row['script']} | {_most(row['promised'])} | {format_ratio(row['gain'])} |" for row in rows]
    return "\n".join([_wrapped(head), "", "| script | at most | without the fault |", "|---|---|---|", *lines])


def _most(promised: float) -> str:
    return format_ratio(promised) if promised > 1 else "not stated"


def _recorded(row: Mapping[str, Any]) -> str:
    share = f"{format_share(row['share'])} of each step of {format_ms(row['step_ms'])}" if row["share"] else "found"
    most = f", at most {format_ratio(row['promised'])}" if row["share"] else ""
    return _wrapped(
        f"Recorded on an {row['device']} (`{row['script']}`, n={row['num_steps']} steps, torch {row['torch']}): "
        f"{share}{most}."
    )


def _thresholds(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table for each threshold: what the rule would find on recorded scripts at other values of it."""
    flawed, healthy, gpus = rows[0]["of"]
    head = (
        f"The rule with other thresholds (bold: the one in use), on recordings of {healthy} healthy scripts, {flawed} "
        f"with inserted faults and {gpus} of GPUs ({rows[0]['on']}). *healthy*: scripts without a fault that would get "
        "this finding; *others*: scripts with another fault that would get it, possibly correct; *missed*: of the "
        f"{rows[0]['scripts']} scripts with this fault, those that would not get it."
    )
    return "\n\n".join([_wrapped(head), *map(_curve, rows)])


def _curve(row: Mapping[str, Any]) -> str:
    whole = isinstance(row["value"], int)
    tried = [round(row["value"] * factor) if whole else row["value"] * factor for factor in row["factors"]]
    values = [str(value) if whole else f"{value:.3g}" for value in tried]
    shown = [f"**{value}**" if factor == 1 else value for value, factor in zip(values, row["factors"], strict=True)]
    lines = [f"| `{row['threshold']}` | {' | '.join(shown)} |", "|---" * (1 + len(shown)) + "|"]
    lines += [f"| {kind} | {' | '.join(map(str, row[kind]))} |" for kind in ("healthy", "others", "missed")]
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
