"""Run the rules over a recording, and sort the findings in the order in which a person wants to read them."""

import graphlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flatout.rules.core.bound_reasons import with_reason
from flatout.rules.core.catalog import catalog
from flatout.rules.core.framework_settings import setting_sentence
from flatout.rules.core.rule import Rule
from flatout.rules.core.same_time import with_same_time
from flatout.rules.core.stage_bounds import bounded
from flatout.rules.facts.loop_lines import in_their_lines
from flatout.rules.facts.machine_facts import is_disturbed
from flatout.schema.finding import Breakdown, Ceiling, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Run

__all__ = ["Examination", "examine", "find"]

MIN_STEPS = 5  # with fewer measured steps, only rules report for which a few are enough
EXPLAINS = 0.5  # a cause with this part of the input's share replaces the general finding
BUSY = " Other programs used the machine meanwhile (MS001): the place stands, the figures are rough."
DOUBT = "MS"  # the family of rules that question the measurement itself
CLOSE = 1.15  # the median error of the bounds is itself 15 % (benchmarks/planted.py, 22 scripts)


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
    """Apply `rules` (all of them when None); a rule that fails becomes a note, and only its own finding is lost."""
    made: list[tuple[Rule, Finding]] = []
    notes: list[str] = []
    run = in_their_lines(run)
    for rule in catalog() if rules is None else rules:
        try:
            finding = rule.check(run, breakdown, headroom)
        except Exception as error:
            notes.append(f"rule {rule.code} {rule.name} could not be applied: {type(error).__name__}: {error}")
            continue
        few = rule.shown_by_few or rule.code.startswith(DOUBT)
        if finding is not None and (breakdown.measured >= MIN_STEPS or few):
            made.append((rule, replace(finding, message=finding.message + setting_sentence(rule, run))))
    of = {rule.code: rule for rule, _ in made}
    made.sort(key=lambda each: _rank(each[1], of))  # largest gain first; at equal gain those with a place; doubts last
    bounds = [bounded(finding, rule, run, headroom, breakdown) for rule, finding in made]
    kept = _without_repetition([finding for finding in bounds if finding is not None], of)
    kept.sort(key=lambda each: _rank(each, of)[:2])  # stable: findings with the same bound keep their order
    found = [with_reason(finding, run, headroom) for finding in _causes_first(kept, of)]
    found = with_same_time(found, breakdown)
    return Examination(tuple(map(_with_doubt, found) if is_disturbed(run) else found), tuple(notes))


def _with_doubt(finding: Finding) -> Finding:
    """Return a finding with what a busy machine leaves of it: MS001 says how busy it was."""
    if finding.code.startswith(DOUBT):
        return finding
    return replace(finding, message=finding.message + BUSY)


def _causes_first(findings: Sequence[Finding], of: Mapping[str, Rule]) -> list[Finding]:
    """Put a cause before a more general cure for the same time: slow reads, say, before caching what is read.

    The finding that is moved behind its cause promises no more than the cause: their bounds differ by less than the
    bounds' own error.
    """
    ordered, moved = list(findings), {}
    by_name = {rule.name: rule for rule in of.values()}
    order = graphlib.TopologicalSorter({name: rule.after for name, rule in by_name.items() if rule.after})
    for place, name in enumerate(order.static_order(), 1):
        rule = by_name.get(name)
        if rule is None:  # found nothing
            continue
        causes = [each for each in ordered if of[each.code].name in rule.after]
        for number, general in enumerate(ordered):
            alike = [cause for cause in causes if general.code == rule.code and _alike(cause, general, rule)]
            bounds = [cause.max_speedup for cause in alike]
            if bounds:
                ordered[number] = replace(general, max_speedup=min(bounds))
                moved[general.code] = place
    return sorted(ordered, key=lambda each: (*_rank(each, of)[:2], moved.get(each.code, 0)))


def _alike(cause: Finding, general: Finding, rule: Rule) -> bool:
    close = cause.max_speedup <= general.max_speedup <= CLOSE * cause.max_speedup
    return close and (not rule.after_at_same_line or _line(cause) == _line(general))


def _rank(finding: Finding, of: Mapping[str, Rule]) -> tuple[int, float, bool, bool, float, str]:
    last = 2 if finding.code.startswith(DOUBT) else int(finding.optional)
    general = of[finding.code].general
    return last, -finding.max_speedup, general, finding.location is None, -finding.share, finding.code


def _line(finding: Finding) -> tuple[str, int] | None:
    return (finding.location.file, finding.location.line) if finding.location is not None else None


def _without_repetition(findings: Sequence[Finding], of: Mapping[str, Rule]) -> list[Finding]:
    """Drop findings that another finding states better.

    The general finding that the step waits for its input is dropped when a cause explains at least half of the wait; a
    slow line is dropped when another finding names what that line does.
    """
    whole = next((finding for finding in findings if of[finding.code].general), None)
    told = {(name, _line(each)) for each in findings if each.location for name in of[each.code].subsumes}
    causes = [
        each for each in findings if each.code.startswith("IN") and each.phase == Phase.INPUT and each is not whole
    ]
    explained = whole is not None and any(cause.share >= EXPLAINS * whole.share for cause in causes)
    return [
        finding
        for finding in findings
        if not (explained and finding is whole) and (of[finding.code].name, _line(finding)) not in told
    ]
