"""Which fixes are worth a trial on this script, in which order."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from flatout.analysis.judge import FLOOR
from flatout.engine.trial.edit_candidates import ProposedEdit, edit_candidates
from flatout.fixes.core.catalog import fixes, from_second_pass
from flatout.fixes.core.fix import Fix
from flatout.rules.core.bounds import speedup_on_freed_cores, speedup_without
from flatout.rules.facts.validation import input_share
from flatout.schema.facts import HELD_INPUT, HELD_TRANSFER
from flatout.schema.finding import Breakdown, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Run
from flatout.schema.trial import Candidate, Equivalence, Selection

__all__ = ["Prospect", "candidates", "lifted", "of_later_passes"]

_MOST = 50.0
_BEHIND_BITWISE = Equivalence.BITWISE.rank + 0.5
_DEAR, _LITTLE = 2.0, 1.2  # what findings promise, as a factor
_FIRST = (-1.0,)

_Place = tuple[tuple[float, ...], float, float, int]
"""Where a candidate stands in the order, the smallest first."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a fix could give on a script."""

    fix: Fix
    ceiling: float  # the most, as a factor
    hoped: float  # what the findings that it addresses promise, as a factor
    reach: float  # the ceiling in a step whose input is cured already, if that is not what it cures
    reasons: tuple[str, ...]  # codes of those findings
    between: bool  # some of these are about what lies between the steps
    in_steps: float  # what those about the steps promise, as a factor

    @classmethod
    def of(cls, fix: Fix, run: Run, breakdown: Breakdown, findings: Sequence[Finding]) -> "Prospect":
        """Return what it could give on the script that `run` recorded."""
        addressed = [_reached(fix, finding, run) for finding in findings if finding.code in fix.addresses]
        hoped = max((finding.max_speedup for finding in addressed), default=1.0)
        ceiling = min(max(_ceiling(fix, breakdown), hoped, _freed(fix, run)), _measured_ceiling(fix, run))
        reach = lifted(ceiling, _rest(fix, breakdown))
        of_steps = [_in_steps(finding, breakdown) for finding in addressed if finding.phase in STEP_PHASES]
        return cls(
            fix, ceiling, hoped, reach, tuple(finding.code for finding in addressed),
            between=len(of_steps) < len(addressed),
            in_steps=min(ceiling, max(of_steps, default=1.0)),
        )  # fmt: skip


def candidates(
    run: Run,
    breakdown: Breakdown,
    findings: Sequence[Finding],
    *,
    only: frozenset[str] = frozenset(),
    also: frozenset[str] = frozenset(),
    equal: Equivalence = Equivalence.PRECISION,
    catalog: Iterable[Fix] | None = None,
    edits: Iterable[ProposedEdit] = (),
) -> tuple[Candidate, ...]:
    """Return what to try on the script that `run` recorded: the strictest class first, most headroom first within it.

    But what promises twice the speed and rounds otherwise comes before what promises little (`_rank`).

    The ceiling of a candidate is what would be gained if the phases it can shorten took no time at all, or what a
    finding that it addresses promises (collecting garbage falls in all phases), or what the cores of busy workers could
    do; no more than holding the batch gave, or the recording of what it works on says. Whatever is tried behind the
    input is offered by what it could give in a step without input (`Candidate.least`). Fixes on request, and those of
    weaker classes than `equal`, are left out unless `only` or `also` names them. Edits of the user's come before all
    others, for they were asked for; those of findings stand among the fixes of their class.
    """
    found: list[tuple[_Place, Candidate]] = []
    for fix in _asked_for(fixes() if catalog is None else catalog, only, only | also, equal):
        least = 0.0 if fix.name in only | also else max(FLOOR, fix.least)  # with less it would not be kept
        found += _of_fix(fix, least, run, Prospect.of(fix, run, breakdown, findings))
    given = edit_candidates(edits, run, breakdown, equal=equal, named=only | also)
    found += [(_turn_of_edit(each, number), each) for number, each in enumerate(given)]
    found.sort(key=lambda each: each[0])
    return tuple(candidate for _, candidate in found)


def _of_fix(fix: Fix, least: float, run: Run, prospect: Prospect) -> Iterator[tuple[_Place, Candidate]]:
    """Yield a fix with each of its settings, and where it stands; nothing where it cannot reach `least`."""
    if prospect.reach < least:
        return
    between = prospect.between or any(phase in _BOTH or phase not in STEP_PHASES for phase in fix.phases)
    for number, settings in enumerate(fix.choices(run)):
        candidate = Candidate(
            selection=Selection(fix.name, settings),
            equivalence=fix.equivalence,
            ceiling=prospect.ceiling,
            least=least,
            switchable=fix.switchable and not fix.environment and not between,
            whole_epochs=between,
            in_steps=prospect.in_steps,
            reasons=prospect.reasons,
        )
        hoped = min(prospect.hoped, prospect.ceiling)
        yield (_turn(fix, candidate.reasons, hoped), -hoped, -prospect.ceiling, number), candidate


def _in_steps(finding: Finding, breakdown: Breakdown) -> float:
    """Return what a finding promises in the steps: of one about what lies between them, too, their part of that."""
    if finding.phase not in _BOTH:
        return finding.max_speedup
    return min(finding.max_speedup, speedup_without(breakdown.share(finding.phase)))


def _reached(fix: Fix, finding: Finding, run: Run) -> Finding:
    """Return a finding with what a fix could give of it: one of the input shortens of validation what loaders take."""
    if finding.phase is not Phase.VALIDATION or Phase.INPUT not in fix.phases:
        return finding
    within = speedup_without(finding.share * input_share(run))
    return replace(finding, max_speedup=min(finding.max_speedup, within))


def _asked_for(catalog: Iterable[Fix], only: Set[str], named: Set[str], equal: Equivalence) -> Iterator[Fix]:
    """Yield the fixes that may be tried: those named, and where `only` is empty all that are no weaker than `equal`."""
    for fix in catalog:
        if fix.name in named or not (only or fix.on_request or fix.equivalence.rank > equal.rank):
            yield fix


def lifted(ceiling: float, rest: float) -> float:
    """Return the ceiling in steps that others have shortened to `rest` of what they were."""
    return min(_MOST, 1 / max(1 / _MOST, 1 - (1 - 1 / ceiling) / max(rest, 1 / _MOST)))


def of_later_passes(run: Run, kept: Iterable[Selection]) -> list[str]:
    """Return a note on fixes in `kept` that gain from the second pass over the data on, where `run` saw only one."""
    names = [selection.fix for selection in kept if from_second_pass(selection)]
    if not names or any(step.epoch for step in run.steps):
        return []
    return [
        f"no second pass over the training data was seen: the gain of {' and '.join(names)} is that of later passes; "
        "the first pass gains less or nothing, so a training of one pass may not need it"
    ]


def _rest(fix: Fix, breakdown: Breakdown) -> float:
    """Return what is left of the step when the fix's turn comes, if all goes well: its input is cured by then."""
    waiting = breakdown.share(Phase.INPUT) + breakdown.share(Phase.TRANSFER)
    return 1.0 if Phase.INPUT in fix.phases else 1 - waiting


def _turn(fix: Fix, reasons: Sequence[str], hoped: float) -> tuple[float, ...]:
    """Return what puts a fix before or behind others; the smaller comes first.

    What is another training, and asked for, comes right behind the BITWISE ones: a larger batch decides what others
    give. What helps few scripts and is hinted at by no finding comes after the others of its class, and what takes long
    to settle (compilation) after all others: it would leave no time for them.
    """
    return fix.usual_s, _rank(fix.equivalence, hoped), fix.seldom and not reasons


def _rank(equivalence: Equivalence, hoped: float) -> float:
    """Return where a class stands: ROUNDING that promises twice the speed comes before BITWISE that promises little.

    Else the budget may end with a few percent: `kept-memory` was kept at 1.02x, and an edit of 2.4x not tried in 90 s.
    """
    if equivalence is Equivalence.SEMANTIC:
        return _BEHIND_BITWISE
    if equivalence is Equivalence.ROUNDING and hoped >= _DEAR:
        return Equivalence.BITWISE.rank + 0.25
    if equivalence is Equivalence.BITWISE and hoped < _LITTLE:
        return Equivalence.BITWISE.rank + 0.4
    return equivalence.rank


def _turn_of_edit(edit: Candidate, number: int) -> _Place:
    """Return where an edit stands: that of a finding as a fix would, one of the user's before all others."""
    turn = (0.0, _rank(edit.equivalence, edit.ceiling), False) if edit.reasons else _FIRST
    return turn, -edit.ceiling, -edit.ceiling, number


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
