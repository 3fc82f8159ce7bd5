"""Findings as cards: what, how much, where, the line itself, and why."""

from collections.abc import Collection, Sequence

from rich.text import Text

from flatout.report.layout import Look
from flatout.report.user_source import relative, source_line
from flatout.report.verdict import format_bound
from flatout.report.visible import cells, shorten_path
from flatout.schema.finding import Evidence, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Frame, Header
from flatout.units import format_bytes, format_ms, format_seconds, format_share

__all__ = ["amounts", "card", "cards", "format_evidence"]

INDENT = 3


def cards(
    findings: Sequence[Finding], header: Header, look: Look, *, preview: Collection[str], full: bool
) -> list[Text]:
    """Return one card for each finding, numbered from 1; `full` adds the numbers behind each."""
    lines: list[Text] = []
    for number, finding in enumerate(findings, start=1):
        lines.append(Text())
        lines += card(number, finding, header, look, preview=finding.code in preview)
        if full:
            lines += _evidence(finding.evidence, look)
    return lines


def card(number: int, finding: Finding, header: Header, look: Look, *, preview: bool) -> list[Text]:
    """Return the lines of one finding."""
    lines = _heading(number, finding, look, preview=preview)
    if finding.location is not None:
        lines.append(_place(finding.location, header, look))
        source = source_line(finding.location, header.started_unix_s)
        if source:
            lines.append(look.line(source, indent=INDENT + 2, style="bold"))
    lines += look.paragraph(finding.message, indent=INDENT)
    if finding.fixes:
        lines += look.paragraph(f"Fixes: {', '.join(finding.fixes)}", indent=INDENT, hanging=2)
    return lines


def _heading(number: int, finding: Finding, look: Look, *, preview: bool) -> list[Text]:
    """Return the name on the left and what it could give on the right, below each other where they do not fit."""
    name = look.safe(f"{finding.code} {finding.name}") + (" (preview)" if preview else "")
    left = f"{number}. {name}"
    gain = ", ".join(amounts(finding))
    gap = look.width - cells(left) - cells(gain)
    if gap >= 2:
        return [Text.assemble((left, "bold"), " " * gap, (gain, "cyan"))]
    return [look.line(left, style="bold"), *look.paragraph(gain, indent=INDENT, style="cyan")]


def amounts(finding: Finding) -> list[str]:
    """Return the share, named by what it is a share of, and the most that there is to gain, with its reason."""
    of = "" if finding.phase is Phase.CHECKPOINT else " of the step" if finding.phase in STEP_PHASES else " of the run"
    amounts = [f"{format_share(finding.share)}{of}"] if finding.share > 0 else []
    return [*amounts, format_bound(finding)] if finding.max_speedup >= 1.005 else amounts


def _place(place: Frame, header: Header, look: Look) -> Text:
    """Return file, line and function on one line; the path gives way first."""
    ending = look.safe(f":{place.line} in {place.function}" if place.function else f":{place.line}")
    room = look.width - INDENT - cells(ending)
    if room < 12:
        ending = f":{place.line}"
        room = look.width - INDENT - len(ending)
    return Text.assemble(" " * INDENT, (shorten_path(look.safe(relative(place.file, header)), room) + ending, "cyan"))


def _evidence(evidence: Sequence[Evidence], look: Look) -> list[Text]:
    """Return the numbers behind a finding, one a line."""
    return [look.line(f"{each.name}: {format_evidence(each)}", indent=INDENT + 2, style="dim") for each in evidence]


def format_evidence(evidence: Evidence) -> str:
    """Return a number in the unit that it came in, as people write it."""
    writers = {"ms": format_ms, "s": format_seconds, "share": format_share, "bytes": format_bytes, "B": format_bytes}
    if evidence.unit in writers:
        return writers[evidence.unit](evidence.value)
    return f"{evidence.value:,.6g} {evidence.unit}".rstrip()
