"""Fixes that address a finding and are not tried, each with the reason."""

from collections.abc import Iterable, Sequence

from flatout.analysis.judge import FLOOR
from flatout.engine.trial.candidates import Prospect
from flatout.fixes.core.catalog import fixes
from flatout.fixes.core.fix import Fix
from flatout.schema.finding import Breakdown, Finding
from flatout.schema.run import Run
from flatout.schema.trial import Candidate, Equivalence, Untried
from flatout.units import format_ratio

__all__ = ["untried"]


def untried(
    run: Run,
    breakdown: Breakdown,
    findings: Sequence[Finding],
    offered: Iterable[Candidate],
    *,
    only: frozenset[str] = frozenset(),
    equal: Equivalence = Equivalence.PRECISION,
    catalog: Iterable[Fix] | None = None,
) -> tuple[Untried, ...]:
    """Return the fixes that address one of `findings` and are not among `offered`, those with most to gain first.

    Where the user named the fixes to try, in `only`, nothing is said of others.
    """
    names = {candidate.selection.fix for candidate in offered}
    left = [fix for fix in (fixes() if catalog is None else catalog) if fix.name not in names]
    prospects = [Prospect.of(fix, run, breakdown, findings) for fix in left if not only or fix.name in only]
    concerned = sorted((each for each in prospects if each.reasons), key=lambda each: -each.hoped)
    return tuple(_of(each, run, equal) for each in concerned)


def _of(prospect: Prospect, run: Run, equal: Equivalence) -> Untried:
    fix = prospect.fix
    least = max(FLOOR, fix.least)
    most = min(prospect.hoped, prospect.ceiling)
    why = fix.unfit(run)
    if why:
        return Untried(fix=fix.name, reason=why, findings=prospect.reasons)
    if prospect.reach < least:
        worth = f", and a trial is worth it from {format_ratio(least)} on" if least > FLOOR else ""
        return Untried(fix=fix.name, reason=f"it could give at most {prospect.reach:.2f}x here{worth}")
    if fix.on_request or fix.equivalence is Equivalence.SEMANTIC:
        return Untried(fix=fix.name, reason=f"tried on request only: --also {fix.name}", findings=prospect.reasons)
    weaker = fix.equivalence.value.lower()
    return Untried(
        fix=fix.name,
        reason=f"it keeps results less equal than --equal {equal.value.lower()} asks for ({weaker})",
        equivalence=fix.equivalence,
        ceiling=most,
        findings=prospect.reasons,
    )
