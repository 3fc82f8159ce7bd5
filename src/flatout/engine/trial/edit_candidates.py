"""Edits of the source as candidates: those that the user gave, and those that cure a finding."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from flatout.analysis.epochs import epoch_steps, project_epoch
from flatout.analysis.judge import FLOOR
from flatout.schema.finding import Breakdown, Finding
from flatout.schema.phase import STEP_PHASES
from flatout.schema.run import Run
from flatout.schema.trial import Candidate, Equivalence, Selection

__all__ = ["ProposedEdit", "edit_candidates"]

_UNKNOWN = 4.0  # what an edit of the user's may give at most, where time is shared out: nobody knows
_SHORT_EPOCH_S = 10.0
_BETWEEN_STEPS = 0.05  # share of an epoch from which on an edit of the user's may be about what lies between steps
_UNEVEN = 1.5  # times the median step: a mean that few steps make, such as the first of each epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedEdit:
    """An edit that is to be tried; without a finding it is the user's, and of a class that nobody knows.

    Attributes:
        equivalence: the class of one that cures a finding.
        weakest: class that it may have instead.
        on_request: tried only where its rule is named.
    """

    selection: Selection
    finding: Finding | None = None
    equivalence: Equivalence = Equivalence.BITWISE
    weakest: Equivalence | None = None
    on_request: bool = False


def edit_candidates(
    edits: Iterable[ProposedEdit],
    run: Run,
    breakdown: Breakdown,
    *,
    equal: Equivalence,
    named: Set[str] = frozenset(),
) -> list[Candidate]:
    """Return the edits as candidates.

    The user's are held to bit equality first, and then to `equal`. Those of findings are held to their own class, and
    tried where they can give enough and keep results as equal as asked for, or where `named` holds their rule; those on
    request in the latter case alone.
    """
    found = []
    for edit in edits:
        if edit.finding is None:
            found.append(_given(edit, run, breakdown, equal))
        elif edit.finding.max_speedup >= FLOOR and (edit.finding.code in named or _is_offered(edit, equal)):
            cure = _cure(edit, edit.finding, equal)
            found.append(replace(cure, whole_epochs=cure.whole_epochs or _is_uneven(run, breakdown)))
    return found


def _is_offered(edit: ProposedEdit, equal: Equivalence) -> bool:
    """Return whether an edit is tried though nobody asked for it."""
    return not edit.on_request and edit.equivalence.rank <= equal.rank


def _given(edit: ProposedEdit, run: Run, breakdown: Breakdown, equal: Equivalence) -> Candidate:
    return Candidate(
        selection=edit.selection,
        equivalence=Equivalence.BITWISE,
        weakest=equal,
        ceiling=_UNKNOWN,
        whole_epochs=_between_steps(run, breakdown),
    )


def _cure(edit: ProposedEdit, finding: Finding, equal: Equivalence) -> Candidate:
    allowed = edit.weakest is not None and edit.equivalence.rank < edit.weakest.rank <= equal.rank
    return Candidate(
        selection=edit.selection,
        equivalence=edit.equivalence,
        weakest=edit.weakest if allowed else None,
        ceiling=finding.max_speedup,
        least=FLOOR,
        whole_epochs=finding.phase not in STEP_PHASES,
        reasons=(finding.code,),
    )


def _is_uneven(run: Run, breakdown: Breakdown) -> bool:
    """Return whether blocks of some steps may miss the slow ones, where a sampler prepares an epoch, say."""
    epoch = project_epoch(run, breakdown)
    is_short = epoch is not None and epoch.seconds <= _SHORT_EPOCH_S
    return is_short and breakdown.mean_ms >= _UNEVEN * breakdown.median_ms


def _between_steps(run: Run, breakdown: Breakdown) -> bool:
    """Return whether blocks are to be whole epochs, so that what lies between steps counts: where these are short."""
    epoch = project_epoch(run, breakdown) if epoch_steps(run) else None
    return epoch is not None and epoch.seconds <= _SHORT_EPOCH_S and epoch.between_s >= _BETWEEN_STEPS * epoch.seconds
