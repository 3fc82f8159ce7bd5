"""The report in short, as Markdown for a pull request."""

import re

from flatout.report.account import shown_phases
from flatout.report.declined import format_factor, format_interval
from flatout.report.layout import Look
from flatout.report.tune_summary import IN_WORDS, headline, is_tuned, remarks
from flatout.report.verdict import LARGEST_SPEEDUP, doubts, ending, is_doubt, short_place, title, verdict
from flatout.report.visible import visible
from flatout.schema.report import Report
from flatout.units import format_ms, format_ratio, format_share

__all__ = ["markdown"]

MAX_FINDINGS = 6


def markdown(report: Report) -> str:
    """Return the verdict, the account and the findings, or what a tune kept; no name in it can act as Markdown."""
    run, breakdown = report.run, report.breakdown
    lines = [f"### {_safe(headline(report) if is_tuned(report) else verdict(report))}", ""]
    told = [title(run)]
    told += [f"torch {run.environment.torch}"] if run.environment.torch else []
    told += [f"{format_ms(breakdown.mean_ms)} a step (n={breakdown.measured:,})"] if breakdown.measured else []
    lines += [_safe(", ".join(told)), ""]
    lines += [f"**{_safe(ending(run))}**", ""] if ending(run) else []
    lines += [*_kept(report), *_account(report), *_findings(report)]
    lines += [f"- {_safe(note)}" for note in doubts(report)]
    return "\n".join(lines).rstrip() + "\n"


def _kept(report: Report) -> list[str]:
    if report.recipe is None or not report.recipe.fixes:
        return []
    rows = [
        f"| {_safe(each.selection.label)} | {format_factor(each.speedup)} | {format_interval(each.low, each.high)} "
        f"| {IN_WORDS[each.equivalence]} |"
        for each in report.recipe.fixes
    ]
    told = [line for each in remarks(report, Look(width=100_000)) for line in (_safe(each.plain.strip()), "")]
    return ["| kept | gain | 95% interval | results |", "|---|---:|---|---|", *rows, "", *told]


def _account(report: Report) -> list[str]:
    if not report.breakdown.measured:
        return []
    rows = [
        f"| {part.phase.value} | {format_ms(part.ms)} | {format_share(part.share)} |"
        for part in shown_phases(report.breakdown)
    ]
    return ["| phase | time | share |", "|---|---:|---:|", *rows, ""]


def _findings(report: Report) -> list[str]:
    found = [finding for finding in report.findings if not is_doubt(finding)][:MAX_FINDINGS]
    rows = [
        f"| {_safe(f'{each.code} {each.name}')} | {_safe(short_place(each.location)) if each.location else ''} "
        f"| {format_share(each.share)} | {format_ratio(min(each.max_speedup, LARGEST_SPEEDUP))} |"
        for each in found
    ]
    return ["| finding | where | share | at most |", "|---|---|---:|---:|", *rows, ""] if rows else []


_ACTS = re.compile(r"[@#$]|:(?=\S)|https?|www|ftp", re.IGNORECASE)
"""What GitHub makes a mention, a link, mathematics or a picture of after the Markdown was read, backslash or not."""


def _safe(text: str) -> str:
    """Return text of a stranger of which nothing acts.

    What means something in Markdown or HTML is escaped; an empty character follows what would become a mention, a link,
    mathematics or a picture.
    """
    escaped = re.sub(r"([\\`*_{}\[\]()+!|<>~&-])", r"\\\1", visible(text))
    return _ACTS.sub(r"\g<0>&#8203;", escaped)
