"""Which fixes are worth a trial on this script, in which order."""

from collections.abc import Iterable, Sequence

from flatout.analysis.judge import FLOOR
from flatout.fixes.catalog import fixes
from flatout.fixes.fix import Fix
from flatout.rules.bounds import speedup_on_freed_cores
from flatout.schema.facts import HELD_INPUT, HELD_TRANSFER
from flatout.schema.finding import Breakdown, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Run
from flatout.schema.trial import Candidate, Equivalence, Selection

__all__ = ["candidates"]

_MOST = 50.0
_BEHIND_BITWISE = Equivalence.BITWISE.rank + 0.5


def candidates(
    run: Run,
    breakdown: Breakdown,
    findings: Sequence[Finding],
    *,
    only: frozenset[str] = frozenset(),
    also: frozenset[str] = frozenset(),
    equal: Equivalence = Equivalence.PRECISION,
    catalog: Iterable[Fix] | None = None,
) -> tuple[Candidate, ...]:
    """Return what to try on the script that `run` recorded: the strictest class first, most headroom first within it.

    What is another training, and asked for by name, comes right behind the BITWISE ones: a larger batch decides what
    the others can give.

    The ceiling of a candidate is what would be gained if the phases it can shorten took no time at all, or what a
    finding that it addresses promises (collecting garbage falls in all phases), or what the cores of busy workers could
    do; no more than holding the batch gave, or the recording of what it works on says. Fixes on request, and those of
    weaker classes than `equal`, are left out unless `only` or `also` names them.
    """
    found: list[tuple[tuple[tuple[float, ...], float, float, int], Candidate]] = []
    for fix in fixes() if catalog is None else catalog:
        named = fix.name in only | also
        if (only and not named) or (not named and (fix.on_request or fix.equivalence.rank > equal.rank)):
            continue
        addressed = [finding for finding in findings if finding.code in fix.addresses]
        hoped = max((finding.max_speedup for finding in addressed), default=1.0)
        ceiling = min(max(_ceiling(fix, breakdown), hoped, _freed(fix, run)), _measured_ceiling(fix, run))
        if ceiling < FLOOR and not named:  # it would not be kept
            continue
        between = any(phase is Phase.CHECKPOINT or phase not in STEP_PHASES for phase in fix.phases)
        for number, settings in enumerate(fix.choices(run)):
            candidate = Candidate(
                selection=Selection(fix.name, settings),
                equivalence=fix.equivalence,
                ceiling=ceiling,
                switchable=fix.switchable and not fix.environment and not between,
                whole_epochs=between,
                reasons=tuple(finding.code for finding in addressed),
            )
            found.append(((_turn(fix, candidate.reasons), -min(hoped, ceiling), -ceiling, number), candidate))
    found.sort(key=lambda each: each[0])
    return tuple(candidate for _, candidate in found)


def _turn(fix: Fix, reasons: Sequence[str]) -> tuple[float, ...]:
    """Return what puts a fix before or behind others, whatever it may give; the smaller comes first.

    What helps few scripts and is hinted at by no finding comes after the others of its class, and what takes long to
    settle (compilation) after all others: it would leave no time for them.
    """
    rank = fix.equivalence.rank if fix.equivalence is not Equivalence.SEMANTIC else _BEHIND_BITWISE
    return fix.usual_s, rank, fix.seldom and not reasons


def _ceiling(fix: Fix, breakdown: Breakdown) -> float:
    """Return the speed-up if the fix's phases took no time."""
    share = sum(breakdown.share(phase) for phase in fix.phases if phase in STEP_PHASES)
    outside = sum(breakdown.outside_s(phase) for phase in fix.phases if phase not in STEP_PHASES or phase in _BOTH)
    share = max(share, breakdown.loop_share(outside))
    return min(_MOST, 1 / max(1 / _MOST, 1 - share))


def _freed(fix: Fix, run: Run) -> float:
    """Return what the training could gain from the cores of its workers, if the fix takes work off them."""
    if Phase.INPUT not in fix.phases:
        return 1.0
    return max((speedup_on_freed_cores(run, one, 1.0) for one in run.loaders if one.is_training), default=1.0)


def _measured_ceiling(fix: Fix, run: Run) -> float:
    """Return what the fix says of the recording, or holding the batch gave if that takes away all it can shorten."""
    holds = {HELD_INPUT: {Phase.INPUT}, HELD_TRANSFER: {Phase.INPUT, Phase.TRANSFER}}
    known = [each.high for each in run.ceilings if set(fix.phases) <= holds.get(each.ceiling, set())]
    return min(fix.bound(run), *known, _MOST)


_BOTH = (Phase.CHECKPOINT,)  # in steps and outside them
