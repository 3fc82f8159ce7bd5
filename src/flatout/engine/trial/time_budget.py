"""How the time of a tune is shared out: timing candidates, comparing their results, confirming the whole recipe."""

import math
import time
from collections.abc import Sequence

from flatout.analysis.judge import FLOOR
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.recipe_proof import CONFIRM_PAIRS, CONFIRM_STARTS, EPOCH_PAIRS
from flatout.fixes.core.catalog import find_fix, from_second_pass
from flatout.schema.trial import Candidate, Equivalence, Trial

__all__ = ["TimeBudget", "by_epochs", "needs_epochs"]

_LEAST_S = 20.0  # for a candidate, however little it could give
_LEAST_SHARE = 0.4  # of what is left, for timing a candidate, however long comparing its results takes
_LEAST_RESERVE_S, _LEAST_RESERVE = 30.0, 0.25  # kept back for the confirmation, the smaller of both, the share of all
_MOST_RESERVE = 0.4  # of all
_CONFIRM_APART = 4  # pairs that a confirmation by processes one after the other should have
_FIRST_LOOK, _FEW, _USUAL_LOOK = 4, 8, 16  # pairs that nothing is said below, that decide much, and that decide most
_SKIPPED = 1.125  # times an epoch is what a block of one takes, with the steps that are left out after a switch
_MARGIN = 1.1  # times what a first look is reckoned to take, so that it is reached
_GRACE = 0.07  # of all: the confirmation may end so much later; a budget is kept within 10 %


class _Comparisons:
    """What comparing results takes: executions of the candidate, and of what it is held to."""

    def __init__(self, pace: Pace, window_s: float) -> None:
        self._one_s = pace.startup_s + 1.5 * window_s  # an execution
        self._made: set[Equivalence] = set()  # classes for which the untouched script's executions are there

    def lasting_s(self, claimed: Equivalence) -> float:
        """Return the seconds of comparing a candidate of which `claimed` is claimed."""
        needed = set() if claimed is Equivalence.SEMANTIC else {Equivalence.BITWISE, claimed}
        missing = needed - self._made  # each twice, once for all candidates
        return (1 + 2 * len(missing)) * self._one_s

    def note(self, claimed: Equivalence) -> None:
        """Take down that a candidate is compared, of which `claimed` is claimed."""
        if claimed is not Equivalence.SEMANTIC:
            self._made |= {Equivalence.BITWISE, claimed}


class TimeBudget:
    """The time of one tune."""

    def __init__(self, until: float, pace: Pace, *, window_s: float, epoch_s: float = 0.0) -> None:
        """Take when it ends and what is known of the script.

        Args:
            until: the end, on the monotonic clock.
            pace: of the script.
            window_s: how long a training is compared.
            epoch_s: how long an epoch takes, with what lies between two of them; 0.0 where that is not known.
        """
        self.until = until
        self._epoch_s = epoch_s
        self._all_s = until - time.monotonic()
        self.confirmed_by = until + _GRACE * self._all_s  # on the monotonic clock: no recipe is lost for some seconds
        self._pace = pace
        self.comparisons = _Comparisons(pace, window_s)

    def left_s(self, kept: Sequence[Trial]) -> float:
        """Return the seconds left for further trials, so that what is kept can still be confirmed."""
        least_s = min(_LEAST_RESERVE_S, _LEAST_RESERVE * self._all_s)
        reserve_s = min(_MOST_RESERVE * self._all_s, max(least_s, self.confirming_s(kept)))
        return self.until - reserve_s - time.monotonic()

    def confirming_s(self, kept: Sequence[Trial]) -> float:
        """Return the seconds that confirming a recipe of `kept` takes."""
        warmup_s = math.fsum(trial.warmup_s for trial in kept)
        if self._epoch_s > 0 and needs_epochs(kept):
            starts = 1 if self._pace.together else CONFIRM_STARTS
            return starts * (self.epochs_s(EPOCH_PAIRS // starts) + warmup_s)
        if self._pace.together:
            return _CONFIRM_APART * (self._pace.apart_s + warmup_s)
        times_the_first_epoch = any(from_second_pass(trial.candidate.selection) for trial in kept)
        return (CONFIRM_STARTS + times_the_first_epoch) * (self._pace.start_of_two_s(CONFIRM_PAIRS) + warmup_s)

    def of(self, candidate: Candidate, queue: Sequence[Candidate], kept: Sequence[Trial]) -> float:
        """Return the seconds `candidate` may take: what is left is shared out by what each in `queue` could give.

        What has nothing left to do beside this one has no share of its own.
        """
        fix = find_fix(candidate.selection.fix)
        idle = {candidate.selection.key, *(fix.replaces if fix is not None else ())}
        others = [other for other in queue if other.selection.key not in idle]
        mine, *hopes = [math.log(max(1.001, one.ceiling)) for one in (candidate, *others)]
        mine /= mine + math.fsum(hopes)
        least_s = max(_LEAST_S, _MARGIN * self._look_s(candidate, _FIRST_LOOK))
        return min(self.timing_s(candidate, kept), max(least_s, mine * self.left_s(kept)))

    def epochs_s(self, num_pairs: int) -> float:
        """Return the seconds that two processes take to start and to finish so many pairs of whole epochs."""
        pair_s = 2 * (_SKIPPED * self._epoch_s + self._pace.skip * self._pace.step_s)
        if self._pace.together:  # one after the other
            return num_pairs * (self._pace.apart_s + pair_s)
        return self._pace.start_of_two_s(0) + num_pairs * pair_s

    def timing_s(self, candidate: Candidate, kept: Sequence[Trial]) -> float:
        """Return the seconds left for timing `candidate` so that its results can still be compared."""
        left_s, settling_s = self.left_s(kept), _settling_s(candidate)
        return max(_LEAST_SHARE * left_s, left_s - self.comparisons.lasting_s(_claim(candidate, kept)) - settling_s)

    def suffices(self, candidate: Candidate, kept: Sequence[Trial]) -> bool:
        """Return whether the time for `candidate` reaches for the first look at its pairs."""
        return self.timing_s(candidate, kept) > self._look_s(candidate, _FIRST_LOOK)

    def wanted_s(self, candidates: Sequence[Candidate], kept: Sequence[Trial]) -> float:
        """Return about how many seconds it takes to try `candidates`, too, and to confirm what is kept."""
        trying_s = math.fsum(self._look_s(candidate, _USUAL_LOOK) for candidate in candidates)
        return (trying_s + self.confirming_s(kept)) / (1 - _LEAST_RESERVE)

    def _look_s(self, candidate: Candidate, num_pairs: int) -> float:
        """Return the seconds until so many pairs are there."""
        settling_s = _settling_s(candidate)
        if _shows_between(candidate) and self._epoch_s > 0:
            return self.epochs_s(num_pairs) + settling_s
        if self._pace.together and not candidate.switchable:
            return num_pairs * (self._pace.apart_s + settling_s)
        return self._pace.startup_s + settling_s + self._pace.steady_s + num_pairs * self._pace.turns_s

    def claim(self, candidate: Candidate, kept: Sequence[Trial]) -> Equivalence | None:
        """Return what is claimed of `candidate` on top of `kept`, None when the time to compare results is over."""
        claimed = _claim(candidate, kept)
        if self.comparisons.lasting_s(claimed) > self.until - time.monotonic():
            return None
        self.comparisons.note(claimed)
        return claimed


def by_epochs(budget: TimeBudget, candidate: Candidate, queue: Sequence[Candidate], kept: Sequence[Trial]) -> bool:
    """Return whether blocks of a candidate's trial are to be whole epochs.

    Blocks of some steps show what a candidate is hoped to give there, where epochs are so long that the time ends
    before much is decided: with 15 s an epoch, a cure of 3.0x was left undecided after three pairs in 77 s.
    """
    if not candidate.whole_epochs:
        return False
    return _shows_between(candidate) or budget.epochs_s(_FEW) <= budget.of(candidate, queue, kept)


def needs_epochs(kept: Sequence[Trial]) -> bool:
    """Return whether a recipe of `kept` is confirmed by whole epochs: some of it shows nowhere else."""
    return any(_shows_between(trial.candidate) for trial in kept)


def _shows_between(candidate: Candidate) -> bool:
    """Return whether what it is hoped to give lies between the steps alone."""
    return candidate.whole_epochs and candidate.in_steps < FLOOR


def _settling_s(candidate: Candidate) -> float:
    fix = find_fix(candidate.selection.fix)
    return fix.usual_s if fix is not None else 0.0


def _claim(candidate: Candidate, kept: Sequence[Trial]) -> Equivalence:
    """Return the weakest class of all; another training that was kept is left out of what others are held to."""
    classes = {trial.candidate.equivalence for trial in kept} - {Equivalence.SEMANTIC}
    return max({candidate.equivalence, *classes}, key=lambda each: each.rank)
