"""Which fixes are worth a trial on this script, in which order."""

from collections import Counter
from collections.abc import Iterable, Sequence

from flatout.analysis.statistics import median
from flatout.fixes.catalog import fixes
from flatout.fixes.fix import Fix
from flatout.schema.finding import Breakdown, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Run
from flatout.schema.trial import Candidate, Equivalence, Selection

__all__ = ["MIN_CEILING", "candidates", "epoch_steps"]

MIN_CEILING = 1.02
"""A candidate that could give less is not tried: it would not be kept."""

_MOST = 50.0


def candidates(
    run: Run,
    breakdown: Breakdown,
    findings: Sequence[Finding],
    *,
    only: frozenset[str] = frozenset(),
    equal: Equivalence = Equivalence.PRECISION,
    catalog: Iterable[Fix] | None = None,
) -> tuple[Candidate, ...]:
    """Return what to try on the script that `run` recorded: the strictest class first, most headroom first within it.

    The ceiling of a candidate is what would be gained if the phases it can shorten took no time at all. Fixes on
    request, and those of weaker classes than `equal`, are left out unless `only` names them.
    """
    found: list[tuple[tuple[float, ...], Candidate]] = []
    for fix in fixes() if catalog is None else catalog:
        named = fix.name in only
        if (only and not named) or (not named and (fix.on_request or fix.equivalence.rank > equal.rank)):
            continue
        addressed = [finding for finding in findings if finding.code in fix.addresses]
        ceiling = _ceiling(fix, breakdown)
        if ceiling < MIN_CEILING and not named:
            continue
        between = any(phase is Phase.CHECKPOINT or phase not in STEP_PHASES for phase in fix.phases)
        hoped = max((finding.max_speedup for finding in addressed), default=1.0)
        for number, settings in enumerate(fix.choices(run)):
            candidate = Candidate(
                selection=Selection(fix.name, settings),
                equivalence=fix.equivalence,
                ceiling=ceiling,
                switchable=fix.switchable and not fix.environment and not between,
                whole_epochs=between,
                reasons=tuple(finding.code for finding in addressed),
            )
            found.append(((fix.equivalence.rank, -min(hoped, ceiling), -ceiling, number), candidate))
    found.sort(key=lambda each: each[0])
    return tuple(candidate for _, candidate in found)


def _ceiling(fix: Fix, breakdown: Breakdown) -> float:
    """Return the speed-up if the fix's phases took no time."""
    share = sum(breakdown.share(phase) for phase in fix.phases if phase in STEP_PHASES)
    outside = sum(breakdown.outside_s(phase) for phase in fix.phases if phase not in STEP_PHASES or phase in _BOTH)
    share = max(share, breakdown.loop_share(outside))
    return min(_MOST, 1 / max(1 / _MOST, 1 - share))


_BOTH = (Phase.CHECKPOINT,)  # in steps and outside them


def epoch_steps(run: Run) -> int:
    """Return the number of steps of a whole epoch, 0 where none was seen and no loader tells."""
    counts = Counter(step.epoch for step in run.steps)
    whole = [counts[epoch] for epoch in counts if min(counts) < epoch < max(counts)]
    if whole:
        return int(median(whole))
    if len(counts) > 1:
        return counts[min(counts)]
    batches = max((loader.num_batches for loader in run.loaders if loader.is_training), default=0)
    per_step = median([step.num_batches for step in run.steps]) if run.steps else 1
    return int(batches / max(1, per_step))
