"""The search for a recipe: candidate after candidate on top of what was kept, then the whole against the untouched.

Greedy, in the order of `engine.trial.candidates`. A candidate is timed first, because most bring nothing, and held to
its claim of equal results only when it is faster. What can be switched inside one process is timed there, several
candidates in one start of the script; the rest between two processes side by side.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from flatout.analysis.epochs import epoch_or_cycle, short_epochs
from flatout.analysis.equality import fails_in_every_class
from flatout.analysis.judge import allocate, compare, last_look
from flatout.engine.process.target import Target
from flatout.engine.trial.block_results import Failure, Measured
from flatout.engine.trial.candidates import lifted, of_later_passes
from flatout.engine.trial.journal import TrialJournal
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.recipe_proof import CONFIRM_PAIRS, Confirmation, make_recipe
from flatout.engine.trial.time_budget import TimeBudget, by_epochs, needs_epochs
from flatout.engine.trial.timing import Bench
from flatout.engine.trial.trial_log import SearchWatch, TrialLog
from flatout.engine.trial.verify import Verifier
from flatout.fixes.core.catalog import find_fix
from flatout.fixes.source.source_edit import edited_files
from flatout.schema.recipe import Recipe
from flatout.schema.report import Report
from flatout.schema.trial import (
    BUDGET_ENDED,
    Candidate,
    Comparison,
    Equality,
    Equivalence,
    Pair,
    Selection,
    Trial,
    Untried,
    Verdict,
)

__all__ = ["Search"]

_LOOKS = (4, 8, 16, 32, 64, 128)
_SIDE_LOOKS = _LOOKS
_ROUNDS = 6  # starts of a script that ends before an arm is decided
_WINDOW_SHARE = 0.03  # of the budget: how long a training is compared, once for each of up to five executions

_SEMANTIC = Equivalence.SEMANTIC
_VERDICTS = {"slower": Verdict.SLOWER, "not faster": Verdict.NOT_FASTER, "not applied": Verdict.NOT_APPLIED}


class Search:
    """One search under way."""

    def __init__(
        self, target: Target, folder: Path, report: Report, offered: Sequence[Candidate], *,
        journal: TrialJournal, until: float, watch: Callable[[str, int, float], None],
    ) -> None:  # fmt: skip
        """Take what is to be tried; trials in the journal count as made."""
        self._log = TrialLog(journal, offered)
        self.recipe: Recipe | None = None
        self.confirmation: Comparison | None = None
        self.notes: list[str] = []
        self._target = target
        self._report = report
        alphas = allocate([one.ceiling for one in offered])
        self._alphas = {one.selection.label: alpha for one, alpha in zip(offered, alphas, strict=True)}
        self._watch = SearchWatch(watch, until)
        pace = Pace.of(report)
        self._bench = Bench(target, folder, self._watch.steps, pace)
        window_s = max(3.0, min(20.0, _WINDOW_SHARE * (until - time.monotonic())))
        epochs = short_epochs(report.run, report.breakdown, window_s)
        self._verifier = Verifier(target, folder, watch=self._watch.steps, epochs=epochs)
        self._verifier.window_s = window_s
        epoch = epoch_or_cycle(report.run, report.breakdown)
        epoch_s = epoch.seconds if epoch is not None else 0.0
        self._shares = TimeBudget(until, pace, window_s=window_s, epoch_s=epoch_s)
        done = {trial.candidate.selection.label for trial in self.trials}
        self._queue = [candidate for candidate in offered if candidate.selection.label not in done]
        self._drop_kept_fixes()

    @property
    def trials(self) -> list[Trial]:
        """The trials that were made."""
        return self._log.trials

    @property
    def untried(self) -> tuple[Untried, ...]:
        """The fixes that address a finding and were offered, but not tried."""
        return self._log.untried

    @property
    def kept(self) -> tuple[Trial, ...]:
        """The trials whose fixes are in force."""
        return tuple(trial for trial in self.trials if trial.verdict is Verdict.KEPT)

    @property
    def base(self) -> tuple[Selection, ...]:
        """What every further candidate is measured on top of."""
        return tuple(trial.candidate.selection for trial in self.kept)

    def run(self) -> None:
        """Try what is left, confirm the whole, make the recipe."""
        too_long: list[Candidate] = []
        while self._queue and self._left_s() > 5:
            first = self._queue[0]
            if not self._worth_trying(first):
                self._queue.remove(first)
                self._log.leave(first, f"on top of what is kept it could give at most {self._reach(first):.2f}x")
            elif not self._shares.suffices(first, self.kept):
                too_long.append(self._queue.pop(0))
            elif first.switchable:
                alike = [one for one in self._queue if one.switchable and one.equivalence == first.equivalence]
                self._try_arms([one for one in alike if self._worth_trying(one)])
            else:
                self._try_processes(first)
            self._drop_kept_fixes()
        if untried := [*too_long, *self._queue]:
            for candidate in untried:
                self._log.leave(candidate, BUDGET_ENDED)
            more = math.ceil(self._shares.wanted_s(untried, self.kept) / 60)
            self.notes.append(
                f"the budget ended before {len(untried)} more could be tried: {more} more minutes would do (--budget)"
            )
        if self.kept:
            self._confirm()

    def _worth_trying(self, candidate: Candidate) -> bool:
        """Return whether it could give enough in steps as short as what was kept has made them."""
        return self._reach(candidate) >= candidate.least

    def _reach(self, candidate: Candidate) -> float:
        gains = (trial.comparison.speedup for trial in self.kept if trial.comparison is not None)
        return lifted(candidate.ceiling, 1 / max(1.0, math.prod(gains)))

    # -- trials -------------------------------------------------------------------------------------------------

    def _try_arms(self, group: Sequence[Candidate]) -> None:
        """Time switchable candidates in one process, until one is faster or all are decided."""
        measured = [Measured() for _ in group]
        start = time.monotonic()
        for _ in range(_ROUNDS):
            open_arms = [number for number, each in enumerate(measured) if not each.decision and not each.failure]
            if not open_arms or self._shares.timing_s(group[open_arms[0]], self.kept) < 3:
                break
            self._watch.stage = f"trying {group[open_arms[0]].selection.label}"
            before = sum(len(each.pairs) for each in measured)
            self._bench.arms(
                self.base,
                [(group[number].selection,) for number in open_arms],
                [measured[number] for number in open_arms],
                alpha=min(self._alpha_of(group[number]) for number in open_arms),
                max_s=self._shares.timing_s(group[open_arms[0]], self.kept),
            )
            faster = any(each.decision == "faster" for each in measured)
            if faster or sum(len(each.pairs) for each in measured) == before:
                break
        share_s = (time.monotonic() - start) / max(1, sum(bool(m.pairs or m.decision or m.failure) for m in measured))
        progressed = False
        for candidate, each in zip(group, measured, strict=True):
            self._look_last(each, candidate)
            if each.decision or each.failure:
                each.wall_s = share_s
                self._conclude(candidate, each)
                progressed = True
                if self.trials[-1].verdict is Verdict.KEPT:
                    return
        if not progressed:  # too short a script for blocks inside it
            self._try_processes(group[0])

    def _try_processes(self, candidate: Candidate) -> None:
        """Time a candidate between two processes side by side, or one after the other where they do not get along."""
        self._watch.stage = f"trying {candidate.selection.label}"
        measured = Measured()
        arm = (*self.base, candidate.selection)
        dropped = edited_files(arm, self._target.folders).dropped
        if dropped:
            self._conclude(candidate, Measured(decision="not applied", stood_back=next(iter(dropped.values()))))
            return
        queued = candidate.selection.settings.get("workers", 0)
        skip = 4 * queued if isinstance(queued, int) else 0  # batches that wait ready after standing still
        decide = self._decide(measured, candidate)
        if not Pace.of(self._report).together:
            self._bench.side_by_side(
                self.base,
                arm,
                measured,
                looks=_SIDE_LOOKS,
                decide=decide,
                max_s=self._shares.of(candidate, self._queue, self.kept),
                epoch_steps=self._epoch_steps(candidate),
                skip=skip,
            )
        if not measured.decision and self._left_s() > 10 and (measured.failure or not measured.pairs):
            alone = Measured()  # did it fail by itself, or because two ran at once?
            self._bench.one_after_the_other(
                self.base,
                arm,
                alone,
                decide=self._decide(alone, candidate),
                max_s=self._left_s(),
                num_pairs=max(_SIDE_LOOKS),
            )
            alone.wall_s += measured.wall_s
            measured = alone
        self._look_last(measured, candidate)
        if measured.pairs and not measured.hits and not measured.failure:
            measured.decision = "not applied"
        self._conclude(candidate, measured)

    def _epoch_steps(self, candidate: Candidate) -> int:
        """Return the steps of blocks of whole epochs; 0 for blocks of some steps."""
        epoch = epoch_or_cycle(self._report.run, self._report.breakdown)
        by_epoch = epoch is not None and by_epochs(self._shares, candidate, self._queue, self.kept)
        return epoch.steps if epoch is not None and by_epoch else 0

    def _alpha_of(self, candidate: Candidate) -> float:
        """Return the error probability that its trial may spend."""
        return self._alphas[candidate.selection.label]

    def _look_last(self, measured: Measured, candidate: Candidate) -> None:
        """Decide by the pairs there are where no more can be had: the time is over, or two processes ended too soon."""
        if measured.decision in ("", "undecided") and measured.hits and not measured.failure:
            measured.decision = (
                last_look(measured.pairs, alpha=self._alpha_of(candidate), looks=_LOOKS) or measured.decision
            )

    def _decide(self, measured: Measured, candidate: Candidate) -> Callable[[Sequence[Pair]], str]:
        """Return what ends a timing: enough pairs, or a fix that says why it leaves alone what it has met by then."""
        alpha = self._alpha_of(candidate)

        def decide(pairs: Sequence[Pair]) -> str:
            most = max((look for look in _SIDE_LOOKS if look <= len(pairs)), default=0)
            if most and measured.stood_back:
                return "not applied"
            return compare(pairs[:most], alpha=alpha, looks=_SIDE_LOOKS).decision if most else ""

        return decide

    def _conclude(self, candidate: Candidate, measured: Measured) -> None:
        """Judge what was measured, hold a faster candidate to its claim, and write the trial down."""
        self._queue.remove(candidate)
        comparison = None
        if measured.pairs:
            comparison = compare(measured.pairs, alpha=self._alpha_of(candidate), looks=_LOOKS)
            comparison = replace(comparison, decision=measured.decision)
        equality: Equality | None = None
        verdict, reason = _verdict(measured)
        start = time.monotonic()
        if verdict is Verdict.KEPT:
            self._watch.stage = f"comparing results under {candidate.selection.label}"
            verdict, reason, equality = self._hold_to_claim(candidate)
            if equality is not None:  # on top of a weaker class no more than that was shown
                candidate = replace(candidate, equivalence=equality.claimed)
        trial = Trial(
            number=len(self.trials) + 1,
            candidate=candidate,
            verdict=verdict,
            reason=reason,
            comparison=comparison,
            equality=equality,
            hits=measured.hits,
            base=self.base,
            wall_s=measured.wall_s + time.monotonic() - start,
            warmup_s=measured.warmup_s,
        )
        try:
            self._log.add(trial)
        except OSError as error:
            self.notes.append(f"a trial could not be written to disk: {error.strerror}")

    def _hold_to_claim(self, candidate: Candidate) -> tuple[Verdict, str, Equality | None]:
        """Compare results by the class it claims, and then by the one that is allowed where nobody knows its class."""
        found, weakest = self._hold_to_class(candidate), candidate.weakest
        equality = found[2]
        if equality is None or equality.equal is not False or weakest is None:
            return found
        weaker = weakest.rank > equality.claimed.rank and not fails_in_every_class(equality)
        return self._hold_to_class(replace(candidate, equivalence=weakest)) if weaker else found

    def _hold_to_class(self, candidate: Candidate) -> tuple[Verdict, str, Equality | None]:
        """Compare results, under a larger batch at the script's own: there the candidate only has to train."""
        claimed = self._shares.claim(candidate, self.kept)
        if claimed is None:
            return Verdict.UNDECIDED, "results were not compared: no time was left for it", None
        same_training = claimed is not Equivalence.SEMANTIC
        base = tuple(one for one in self.kept if not (same_training and one.candidate.equivalence is _SEMANTIC))
        equality = self._verifier.check((*(one.candidate.selection for one in base), candidate.selection), claimed)
        if equality.equal and len(base) < len(self.kept):
            whole = self._verifier.check((*self.base, candidate.selection), _SEMANTIC)
            equality = whole if whole.equal is False else equality
        if equality.equal and (reason := self._stands_back()):
            return Verdict.NOT_APPLIED, reason, equality
        asked_for = claimed is _SEMANTIC and bool(equality.num_steps)  # another training, and it trains
        if equality.equal or (equality.equal is None and asked_for):
            return Verdict.KEPT, "", equality
        if equality.equal is None:
            return Verdict.UNDECIDED, equality.reason, equality
        return Verdict.RESULTS_DIFFER, equality.reason, equality

    def _stands_back(self) -> str:
        """Return why the latest candidate would serve nothing in a training, though a trial showed it faster.

        A trial shows the speed of passes served from memory at once; a data set that is another one in each pass is
        served nothing from the second on, which is seen where the ends of epochs are run through.
        """
        training = {loader.name for loader in self._report.run.loaders if loader.is_training}
        concerned = [one for one in self._verifier.accounts if one.passes > 1 and one.dataset in training]
        return next((f"{one.place}: {why}" if one.place else why for one in concerned if (why := one.stands_back)), "")

    def _drop_kept_fixes(self) -> None:
        """Drop other settings of kept fixes, and fixes that have nothing left to do beside them."""
        names = {selection.key for selection in self.base}
        replaced: dict[str, str] = {}  # by which kept fix
        for name in sorted(names):
            fix = find_fix(name)
            replaced |= dict.fromkeys(fix.replaces if fix is not None else (), name)
        dropped = {one.selection.key: None for one in self._queue if one.selection.key in replaced.keys() - names}
        if dropped:
            kept = " and ".join(sorted({replaced[name] for name in dropped}))
            self.notes.append(f"not tried, because {kept} leaves nothing to do: {', '.join(dropped)}")
        self._queue = [one for one in self._queue if one.selection.key not in names | dropped.keys()]

    # -- the whole ----------------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        self._watch.stage = "confirming the whole recipe"
        epoch, pace = epoch_or_cycle(self._report.run, self._report.breakdown), Pace.of(self._report)
        confirmation = Confirmation(
            self._bench,
            together=pace.together,
            until=self._shares.confirmed_by,
            start_s=pace.start_of_two_s(CONFIRM_PAIRS),
            epoch_s=math.inf if epoch is None else epoch.seconds - epoch.between_s,
            epoch_steps=epoch.steps if epoch is not None and needs_epochs(self.kept) else 0,
        )
        dropped = confirmation.leave_one_out(self.kept, whole_s=self._shares.confirming_s(self.kept))
        for trial, comparison in dropped:
            reason = f"the recipe is as fast without it ({1 / comparison.speedup:.2f}x with it)"
            self._log.change(trial, Verdict.NOT_FASTER, reason)
        self.confirmation = confirmation.whole(self.base)
        if self.confirmation is None or self.confirmation.decision != "faster":
            found = "was not measured in time" if self.confirmation is None else "was not confirmed in fresh processes"
            self.notes.append(f"the recipe as a whole {found}; nothing is kept")
            for trial in self.kept:
                self._log.change(trial, Verdict.UNDECIDED, f"the whole recipe {found}")
            return
        self._watch.stage = "timing the first epoch"
        gains = confirmation.gains(self.base, self.confirmation.speedup)
        self.recipe = make_recipe(self._target, self._report, self.kept, self.confirmation, gains)
        self.notes += of_later_passes(self._report.run, self.base)

    def _left_s(self) -> float:
        return self._shares.left_s(self.kept)


def _verdict(measured: Measured) -> tuple[Verdict, str]:
    """Return what the timing alone says; KEPT where only the equality of results is open."""
    failure: Failure | None = measured.failure
    if failure is not None:
        return failure.verdict, failure.reason
    if measured.decision == "not applied" and measured.stood_back:
        return Verdict.NOT_APPLIED, measured.stood_back
    if measured.decision == "failed":
        return Verdict.NOT_APPLIED, measured.reason
    if measured.decision == "faster":
        return Verdict.KEPT, ""
    if measured.decision in _VERDICTS:
        return _VERDICTS[measured.decision], measured.reason
    return Verdict.UNDECIDED, measured.reason or ("" if measured.pairs else "no pair of blocks was finished in time")
