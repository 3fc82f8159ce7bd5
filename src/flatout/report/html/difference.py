"""A comparison of recordings as one self-contained HTML file, in the look of the report; it runs no script at all."""

import math
from typing import Any

from flatout.analysis.difference import Gate
from flatout.report.cards import amounts
from flatout.report.difference import advice, gate_sentence, headline, on_samples, shown_changes, sides, signed_ms
from flatout.report.html.assets import asset, template
from flatout.report.verdict import short_place
from flatout.schema.difference import Change, Difference
from flatout.schema.finding import Finding
from flatout.units import format_ms, format_share

__all__ = ["difference_page"]

_REACH = 1.05
"""The axis of changes ends this much beyond the widest interval."""


def difference_page(found: Difference, *, limit: float | None = None, gate: Gate | None = None) -> str:
    """Return the whole page: what the terminal says of the comparison, with the intervals drawn."""
    changes = shown_changes(found)
    reach_ms = _REACH * max((_extent(change) for change in changes), default=0.0)
    longest_ms = max((max(change.before_ms, change.after_ms) for change in changes), default=0.0)
    return template("difference.html").render(
        style=asset("page.css"),
        script=found.script,
        verdict=headline(found),
        tone="look" if found.low > 1 else "good",
        gate=None if limit is None or gate is None else gate_sentence(found, limit, gate),
        gate_tone="" if gate is None else {True: "good", False: "bad", None: "look"}[gate.passed],
        sides=sides(found),
        figures=_figures(found),
        phases=[_phase(change, longest_ms, reach_ms) for change in changes],
        findings=[("In B only", [_finding(each) for each in found.came], "No new finding."),
                  ("In A only", [_finding(each) for each in found.went], "No finding disappeared.")],
        surroundings=[(each.name, each.before, each.after) for each in found.surroundings],
        notes=[sentence for sentence in (on_samples(found), advice(found)) if sentence],
    )  # fmt: skip


def _figures(found: Difference) -> list[tuple[str, str, str]]:
    interval = f"95% interval {found.low:.2f} to {found.high:.2f}"
    return [
        ("a step in A", format_ms(found.before_ms), f"n={found.num_before}"),
        ("a step in B", format_ms(found.after_ms), f"n={found.num_after}"),
        ("B divided by A", f"{found.ratio:.3f}", interval),
        ("scatter of one recording", format_share(found.noise), ""),
    ]


def _extent(change: Change) -> float:
    """Return how far from zero a change and its interval reach, as far as that is a number."""
    return max(
        (abs(value) for value in (change.low_ms, change.high_ms, change.ms) if math.isfinite(value)), default=0.0
    )


def _phase(change: Change, longest_ms: float, reach_ms: float) -> dict[str, str]:
    sure = change.low_ms > 0 or change.high_ms < 0
    return {
        "name": change.name,
        "before": format_ms(change.before_ms) if change.before_ms else "-",
        "after": format_ms(change.after_ms) if change.after_ms else "-",
        "before_width": _percent(change.before_ms, longest_ms),
        "after_width": _percent(change.after_ms, longest_ms),
        "change": signed_ms(change.ms),
        "interval": f"{signed_ms(change.low_ms)} to {signed_ms(change.high_ms)}",
        "tone": ("look" if change.ms > 0 else "good") if sure else "quiet",
        "left": _place(change.low_ms, reach_ms),
        "right": _percent(reach_ms - change.high_ms, 2 * reach_ms),
        "dot": _place(change.ms, reach_ms),
    }


def _place(value_ms: float, reach_ms: float) -> str:
    return _percent(value_ms + reach_ms, 2 * reach_ms)


def _percent(part: float, whole: float) -> str:
    """Return a width or a place for a style: plain digits, whatever the numbers were."""
    share = part / whole if whole > 0 else 0.0
    if math.isnan(share):
        return "0%"
    return f"{100 * min(1.0, max(0.0, share)):.2f}%"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "gain": ", ".join(amounts(finding)),
        "place": short_place(finding.location) if finding.location is not None else "",
        "message": finding.message,
        "fixes": finding.fixes,
    }
