"""Two sets of recordings side by side, as text and as JSON; the sentences are those of the page, too."""

from typing import Any

from rich.text import Text

from flatout.analysis.difference import Gate
from flatout.report.layout import Look, join
from flatout.report.rows import finding_row, finite
from flatout.report.verdict import short_place
from flatout.schema.difference import Change, Difference
from flatout.schema.finding import Finding
from flatout.units import format_ms, format_share

__all__ = [
    "DIFFERENCE_SCHEMA",
    "advice",
    "difference_row",
    "difference_text",
    "gate_sentence",
    "headline",
    "on_samples",
    "shown_changes",
    "sides",
    "signed_ms",
]

DIFFERENCE_SCHEMA = 1

FEW = 3
"""Recordings on a side below which the text says how to get more."""

_LABEL, _AMOUNT = 10, 10
_SHOWN = 0.005
"""A phase that is smaller than this share of the step on both sides is left out."""


def difference_text(found: Difference, look: Look, *, limit: float | None = None, gate: Gate | None = None) -> Text:
    """Return what changed: the step, its phases, what was found on one side only, what else is not the same."""
    sections = [
        look.paragraph(f"{found.script}: {sides(found)}", hanging=2, style="dim"),
        look.paragraph(headline(found), style="bold yellow" if found.low > 1 else "bold"),
        [*_told(on_samples(found), look), *_phases(found, look)],
        _findings(found, look),
        _surroundings(found, look),
        _told(advice(found), look),
        _limit(found, limit, gate, look),
    ]
    lines: list[Text] = []
    for section in filter(None, sections):
        lines += [Text(), *section] if lines else section
    return join(lines)


def difference_row(found: Difference, *, limit: float | None = None, gate: Gate | None = None) -> dict[str, Any]:
    """Return the same as plain values: `ratio` is B's step time divided by A's; shares are of 1, times milliseconds.

    `turns` is null where recordings are compared; else A and B took turns, and each side was recorded for its findings.
    `samples` is null where steps of both sides have as many, or it is not known; else times of B are of as many samples
    as a step of A has. `verdict` is "slower", "within limit", "cannot be told", or null where no limit was given.
    """
    verdicts = {True: "within limit", False: "slower", None: "cannot be told"}
    return {
        "schema": DIFFERENCE_SCHEMA,  # 1; counted apart from that of the report
        "script": found.script,
        "recordings": {"before": found.num_before, "after": found.num_after},  # how many there are on each side
        "turns": {  # null where recordings are compared; else both sides took turns, and were recorded for the rest
            "starts": found.num_starts,
            "pairs": found.num_pairs,
        }
        if found.num_starts
        else None,
        "step": {  # times of a step, their ratio with its 95 % interval, what one recording or start scatters by
            "before_ms": finite(found.before_ms),
            "after_ms": finite(found.after_ms),
            "ratio": finite(found.ratio),
            "low": finite(found.low),
            "high": finite(found.high),
            "noise": finite(found.noise),
            "chance": finite(found.chance),
        },
        "samples": None  # of a step on both sides, where they differ
        if found.samples_before is None
        else {"before": finite(found.samples_before), "after": finite(found.samples_after or 0.0)},
        "phases": [_phase_row(change) for change in found.phases],  # those that the step has on either side
        "came": [finding_row(finding) for finding in found.came],  # findings of B that A does not have
        "went": [finding_row(finding) for finding in found.went],  # findings of A that B does not have
        "surroundings": [  # what else is not the same: name, before, after
            {"name": each.name, "before": each.before, "after": each.after} for each in found.surroundings
        ],
        "limit": limit,  # as it was given, of 1; null without one
        "verdict": None if gate is None else verdicts[gate.passed],
        "reason": "" if gate is None else gate.reason,
    }


def _phase_row(change: Change) -> dict[str, Any]:
    return {
        "phase": change.name,
        "before_ms": finite(change.before_ms),  # mean time of a step
        "after_ms": finite(change.after_ms),
        "low_ms": finite(change.low_ms),  # of the 95 % interval of the change
        "high_ms": finite(change.high_ms),
    }


def sides(found: Difference) -> str:
    """Return how many recordings each side has."""

    def told(number: int) -> str:
        return f"{number} recording{'s' if number != 1 else ''}"

    if found.num_starts:
        return f"A and B trained side by side, in turns: {found.num_starts} starts, {found.num_pairs} pairs of blocks"
    return f"A is {told(found.num_before)}, B is {told(found.num_after)}"


def headline(found: Difference) -> str:
    """Return the step before and after, and whether that is more than noise."""
    change = found.ratio - 1
    interval = f"95% interval {_signed(found.low - 1)} to {_signed(found.high - 1)}"
    times = f"{format_ms(found.before_ms)} in A, {format_ms(found.after_ms)} in B"
    if found.low > 1:
        return f"B is slower: a step takes {_signed(change)} ({interval}), {times}."
    if found.high < 1:
        return f"B is faster: a step takes {_signed(change)} ({interval}), {times}."
    return f"No difference beyond noise: a step takes {_signed(change)} in B ({interval}), {times}."


def _signed(share: float) -> str:
    return f"{share * 100:+.1f}%"


def on_samples(found: Difference) -> str:
    """Return the sentence on steps of different size, "" where they have as many samples."""
    if found.samples_before is None:
        return ""
    return (
        f"Steps of A have {found.samples_before:g} samples, of B {found.samples_after:g}: times of B are "
        "scaled to the samples of a step of A."
    )


def _told(sentence: str, look: Look) -> list[Text]:
    return look.paragraph(sentence, hanging=2) if sentence else []


def shown_changes(found: Difference) -> list[Change]:
    """Return the phases worth a line, the largest change first."""
    least = _SHOWN * max(found.before_ms, found.after_ms)
    shown = [change for change in found.phases if max(change.before_ms, change.after_ms) >= least]
    return sorted(shown, key=lambda change: -abs(change.ms))


def _phases(found: Difference, look: Look) -> list[Text]:
    """Return a line for each phase worth one."""
    shown = shown_changes(found)
    rows = [f"  {'':<{_LABEL}}{'A':>{_AMOUNT}}{'B':>{_AMOUNT}}{'change':>{_AMOUNT + 2}}   95% interval"]
    for change in shown:
        amounts = f"{_ms(change.before_ms):>{_AMOUNT}}{_ms(change.after_ms):>{_AMOUNT}}"
        moved = f"{signed_ms(change.ms):>{_AMOUNT + 2}}   {signed_ms(change.low_ms)} to {signed_ms(change.high_ms)}"
        rows.append(f"  {change.name.replace('_', ' '):<{_LABEL}}{amounts}{moved}")
    return [look.line(row) for row in rows] if shown else []


def _ms(value: float) -> str:
    return format_ms(value) if value else "-"


def signed_ms(value: float) -> str:
    """Return a change of a time with its sign: `+20.0 ms`."""
    return f"{'+' if value >= 0 else '-'}{format_ms(abs(value))}"


def _findings(found: Difference, look: Look) -> list[Text]:
    """Return what was found on one side only, in a line each."""
    lines: list[Text] = []
    for title, side in (("In B only", found.came), ("In A only", found.went)):
        for finding in side:
            lines += look.paragraph(f"{title}: {_named(finding)}", hanging=2)
    return lines


def _named(finding: Finding) -> str:
    place = f" at {short_place(finding.location)}" if finding.location is not None else ""
    return f"{finding.code} {finding.name}{place}, {format_share(finding.share)}"


def _surroundings(found: Difference, look: Look) -> list[Text]:
    if not found.surroundings:
        return []
    told = "; ".join(f"{each.name}: {each.before} in A, {each.after} in B" for each in found.surroundings)
    return look.paragraph(f"Not the same on both sides, so the code may not be the only reason: {told}.", hanging=2)


def advice(found: Difference) -> str:
    """Return how to tell smaller differences, "" where there are recordings enough."""
    if min(found.num_before, found.num_after) >= FEW or found.num_starts:
        return ""
    return (
        f"One recording is taken to scatter by {format_share(found.noise)}. More of them tell smaller differences: "
        "`flatout diagnose --out A SCRIPT` and `--out B` in turn, some times, then `flatout compare A B`."
    )


def _limit(found: Difference, limit: float | None, gate: Gate | None, look: Look) -> list[Text]:
    if limit is None or gate is None:
        return []
    styles = {True: "bold green", False: "bold red", None: "bold magenta"}
    return look.paragraph(gate_sentence(found, limit, gate), hanging=2, style=styles[gate.passed])


def gate_sentence(found: Difference, limit: float, gate: Gate) -> str:
    """Return what a limit says, and why."""
    title = {True: "Passed", False: "Failed", None: "Undecided"}[gate.passed]
    more = "Give it more time" if found.num_starts else "Record more on each side"
    advised = f" {more}, or allow more." if gate.passed is None else ""
    return f"{title}, limit {limit * 100:.4g}%: {gate.reason}.{advised}"
