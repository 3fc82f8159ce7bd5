"""Run the rules over a recording, and put what they find in the order in which a person wants to read it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from flatout.rules.core.catalog import catalog
from flatout.rules.core.framework_settings import in_its_own_words
from flatout.rules.core.rule import Rule
from flatout.rules.core.stage_bounds import bounded
from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Run

__all__ = ["Examination", "examine", "find"]

GENERAL = "IN001"  # says that the step waits for its input; the other IN rules say why
MIN_STEPS = 5  # below this many measured steps only what a few of them can show is said
SHOWN_BY_FEW = ("MS", "ME001", "EP002", "CO006", "IN013")
EXPLAINS = 0.5  # a cause with this much of the input's share makes the general statement superfluous
SAYS_MORE = {  # at the same line: what waits, collects, breaks, is asked for
    "IN012": ("IN003",),
    "IN015": ("IN003",),
    "HO004": ("HO001",),
    "CO005": ("CO004",),
    "SY002": ("SY001",),
    "TR005": ("SY001", "HO001"),
    "IN017": ("IN003",),
    "IN018": ("IN003",),
}
CAUSES_OF = {  # told first where they give nearly as much
    "IN007": ("IN012", "IN017", "IN018"),  # at the same line: what is waited for
    "IN012": ("IN018",),  # with fewer bytes there is less to wait for
    "IN002": ("IN003", "IN004", "IN005", "IN007"),  # what makes the work that workers only hide
}
CLOSE = 1.15  # bounds are themselves off by 15 % in the middle (benchmarks/planted.py, 22 scripts)


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
        if finding is not None:
            finding = replace(finding, message=finding.message + in_its_own_words(finding, run))
        if finding is not None and (breakdown.measured >= MIN_STEPS or finding.code.startswith(SHOWN_BY_FEW)):
            findings.append(finding)
    ranked = sorted(findings, key=_rank)  # what gives most first; at equal gain what has a place, doubts last
    bounds = [finding for each in ranked if (finding := bounded(each, run, headroom, breakdown)) is not None]
    kept = _without_repetition(bounds)  # only now: what a ceiling takes away explains nothing
    kept.sort(key=lambda each: _rank(each)[:2])  # stable: what one ceiling bounds stays in order
    return Examination(tuple(_causes_first(kept)), tuple(notes))


def _causes_first(findings: Sequence[Finding]) -> list[Finding]:
    """Put a cause before what could be done about all of it: waiting, say, before keeping what is waited for.

    Both speak of the same time. What comes behind its cause promises no more than it: their bounds differ by less than
    they are worth.
    """
    ordered, moved = list(findings), {}
    for place, (code, names) in enumerate(CAUSES_OF.items(), 1):
        causes = [each for each in ordered if each.code in names]
        for number, general in enumerate(ordered):
            bounds = [cause.max_speedup for cause in causes if general.code == code and _alike(cause, general)]
            if bounds:
                ordered[number] = replace(general, max_speedup=min(bounds))
                moved[code] = place
    return sorted(ordered, key=lambda each: (*_rank(each)[:2], moved.get(each.code, 0)))


def _alike(cause: Finding, general: Finding) -> bool:
    close = cause.max_speedup <= general.max_speedup <= CLOSE * cause.max_speedup
    return close and (general.code != "IN007" or _line(cause) == _line(general))


def _rank(finding: Finding) -> tuple[bool, float, bool, bool, float, str]:
    doubt = finding.code.startswith("MS")
    general = finding.code == GENERAL
    return doubt, -finding.max_speedup, general, finding.location is None, -finding.share, finding.code


def _line(finding: Finding) -> tuple[str, int] | None:
    return (finding.location.file, finding.location.line) if finding.location is not None else None


def _without_repetition(findings: Sequence[Finding]) -> list[Finding]:
    """Leave out what another finding says better.

    The general statement that the step waits for its input goes when a cause explains most of that; a slow line goes
    when it is found what the same line does.
    """
    whole = next((finding for finding in findings if finding.code == GENERAL), None)
    told = {(code, _line(each)) for each in findings if each.location for code in SAYS_MORE.get(each.code, ())}
    causes = [
        each for each in findings if each.code.startswith("IN") and each.phase == Phase.INPUT and each is not whole
    ]
    explained = whole is not None and any(cause.share >= EXPLAINS * whole.share for cause in causes)
    return [
        finding
        for finding in findings
        if not (explained and finding is whole) and (finding.code, _line(finding)) not in told
    ]
