"""Findings that are about one and the same time: the second says so, and that the gains do not add up."""

from collections.abc import Sequence
from dataclasses import replace

from flatout.schema.finding import Breakdown, Finding
from flatout.schema.phase import STEP_PHASES

__all__ = ["with_same_time"]

OVERLAP = 1.1  # times the whole phase: shares that are larger together overlap, whatever their own errors are


def with_same_time(findings: Sequence[Finding], breakdown: Breakdown) -> list[Finding]:
    """Return the findings; each whose time an earlier one has named already says which one that is."""
    told: list[Finding] = []
    for finding in findings:
        earlier = next((each for each in told if _same_time(each, finding, breakdown)), None)
        told.append(finding if earlier is None else replace(finding, message=finding.message + _sentence(earlier)))
    return told


def _sentence(earlier: Finding) -> str:
    return f" This is the same time as {earlier.code} names: the two gains do not add up."


def _same_time(one: Finding, other: Finding, breakdown: Breakdown) -> bool:
    """Return whether two findings name the same time: one line in one phase, or more together than the phase has."""
    if one.phase is not other.phase or not (one.share > 0 and other.share > 0):
        return False
    places = [(each.location.file, each.location.line) for each in (one, other) if each.location is not None]
    if len(places) == 2 and places[0] == places[1]:
        return True
    whole = breakdown.share(one.phase)
    if one.phase not in STEP_PHASES or whole <= 0:  # seen between the steps, or in the deep run alone
        whole = breakdown.loop_share(breakdown.outside_s(one.phase))
    return 0 < whole < (one.share + other.share) / OVERLAP
