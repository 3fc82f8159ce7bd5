"""Run the rules over a recording, and put what they find in the order in which a person wants to read it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flatout.rules.catalog import catalog
from flatout.rules.rule import Rule
from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.run import Run

__all__ = ["Examination", "examine", "find"]

GENERAL = "IN001"  # says that the step waits for its input; the other IN rules say why
MIN_STEPS = 5  # below this many measured steps only what a few of them can show is said
SHOWN_BY_FEW = ("MS", "ME001", "EP002")
EXPLAINS = 0.5  # a cause with this much of the input's share makes the general statement superfluous
WAITING, SLOW_LINE = "IN012", "IN003"


@dataclass(frozen=True, slots=True)
class Examination:
    """What the rules found, and which of them could not be applied."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


def find(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...] = ()) -> tuple[Finding, ...]:
    """Return the findings of every rule, the one with the most to gain first."""
    return examine(run, breakdown, headroom).findings


def examine(
    run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...] = (), rules: Iterable[Rule] | None = None
) -> Examination:
    """Apply `rules` (all of them when None); a rule that fails becomes a note and costs only its own finding."""
    findings: list[Finding] = []
    notes: list[str] = []
    for rule in catalog() if rules is None else rules:
        try:
            finding = rule.check(run, breakdown, headroom)
        except Exception as error:
            notes.append(f"rule {rule.code} {rule.name} could not be applied: {type(error).__name__}: {error}")
            continue
        if finding is not None and (breakdown.measured >= MIN_STEPS or finding.code.startswith(SHOWN_BY_FEW)):
            findings.append(finding)
    return Examination(_ranked(findings), tuple(notes))


def _ranked(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Sort by what each could give; at equal gain the one with a place comes first, doubts about the run last."""
    return tuple(sorted(_without_repetition(findings), key=_rank))


def _rank(finding: Finding) -> tuple[bool, float, bool, bool, float, str]:
    doubt = finding.code.startswith("MS")
    general = finding.code == GENERAL
    return doubt, -finding.max_speedup, general, finding.location is None, -finding.share, finding.code


def _without_repetition(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out what another finding says better.

    The general statement that the step waits for its input goes when a cause explains most of that; a slow line goes
    when the same line is found to wait rather than to work.
    """
    whole = next((finding for finding in findings if finding.code == GENERAL), None)
    waits = {finding.location for finding in findings if finding.code == WAITING and finding.location is not None}
    causes = [finding for finding in findings if finding.code.startswith("IN") and finding is not whole]
    explained = whole is not None and any(cause.share >= EXPLAINS * whole.share for cause in causes)
    return [
        finding
        for finding in findings
        if not (explained and finding is whole) and not (finding.code == SLOW_LINE and finding.location in waits)
    ]
