"""What a tune did not try although a finding called for it, and what the next class of equality would give."""

from collections.abc import Sequence

from rich.text import Text

from flatout.report.declined import format_factor
from flatout.report.layout import Look
from flatout.schema.report import Report
from flatout.schema.trial import Equivalence, Untried

__all__ = ["MAX_UNTRIED", "next_class", "untried_lines", "untried_rows"]

MAX_UNTRIED = 8
_MOST_NAMED = 3  # fixes of the next class
_OF_USE = 1.05  # a recipe with less leaves the question open what else there is


def untried_rows(untried: Sequence[Untried]) -> list[tuple[str, str]]:
    """Return names and reason, those of one reason together; at most 8, the last of which counts the others."""
    names: dict[str, list[str]] = {}
    for each in untried:
        names.setdefault(each.reason, []).append(each.fix)
    rows = [(", ".join(dict.fromkeys(fixes)), reason) for reason, fixes in names.items()]
    return rows if len(rows) <= MAX_UNTRIED else [*rows[: MAX_UNTRIED - 1], _more(rows[MAX_UNTRIED - 1 :])]


def _more(rows: Sequence[tuple[str, str]]) -> tuple[str, str]:
    return ", ".join(names for names, _ in rows), "for other reasons: flatout explain NAME says when each is tried"


def next_class(report: Report) -> str:
    """Return what fixes could give that keep results less equal than was asked for; empty where enough was kept."""
    found = report.confirmation
    if report.recipe is not None and (found is None or found.speedup >= _OF_USE):
        return ""
    classes = {each.equivalence for each in report.untried if each.equivalence is not None}
    weaker = min(classes - {Equivalence.SEMANTIC}, key=lambda each: each.rank, default=None)
    if weaker is None:
        return ""
    of_it = sorted((each for each in report.untried if each.equivalence is weaker), key=lambda each: -each.ceiling)
    told = [f"{each.fix}, at most {format_factor(each.ceiling)} ({', '.join(each.findings)})" for each in of_it]
    return f"With --equal {weaker.value.lower()}: {'; '.join(told[:_MOST_NAMED])}."


def untried_lines(report: Report, look: Look) -> list[Text]:
    """Return what was not tried, a line for each reason, and the sentence on the next class."""
    rows, told = untried_rows(report.untried), next_class(report)
    lines = [look.line("Not tried", style="bold")] if rows else []
    for names, reason in rows:
        lines += look.paragraph(f"{names}: {reason}", indent=2, hanging=2)
    return [*lines, *(look.paragraph(told, hanging=2) if told else [])]
