"""`flatout tune --nproc-per-node`: whether a script of one process is faster on several ranks, and equal.

The untouched script is diagnosed and run as a reference; the same script on ranks is held against it by the gates of
every other candidate. Speed is that of whole processes in turns: ranks do not take turns with one process.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flatout.analysis.judge import compare, last_look
from flatout.engine.diagnose import Limits, diagnose, diagnose_in
from flatout.engine.placement import Placement
from flatout.engine.process.launch import read_notes
from flatout.engine.process.leftovers import settle_left_over
from flatout.engine.process.run_folder import one_at_a_time, run_folder
from flatout.engine.process.target import Target
from flatout.engine.progress import Progress
from flatout.engine.ranked_target import ranked
from flatout.engine.trial.block_results import Failure, Measured
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.recipe_proof import proof_of
from flatout.engine.trial.timing import Bench
from flatout.engine.trial.verify import Verifier
from flatout.errors import Interrupted
from flatout.schema.recipe import RankProof, Recipe
from flatout.schema.report import Report
from flatout.schema.trial import RANKS, Candidate, Comparison, Equality, Equivalence, Pair, Selection, Trial, Verdict

__all__ = ["diagnose_on_ranks", "tune_on_ranks"]

_DIAGNOSIS = 0.25  # of the budget, at most
_PAIRS = (4, 8, 16)  # of processes, after which it is looked whether they tell enough
_ALPHA = 0.01
_STALL_S = 60.0  # the first call of each kind is tried on copies

Watch = Callable[[Progress], None]

InWords = Callable[..., list[str]]
"""From the accounts of ranks and their number: what became of the model's calls, as sentences."""


def diagnose_on_ranks(
    target: Target, placement: Placement, *, limits: Limits, out: Path | None, watch: Watch,
    echo: Callable[[bytes], None] | None, in_words: InWords,
) -> Report:  # fmt: skip
    """Diagnose `target` on the ranks of `placement`, and say what became of its model's calls.

    No fix is offered: those of a recipe are left out on ranks.

    Raises:
        FlatoutError: as `diagnose`.
    """
    with ranked(target, placement) as (on_ranks, _):
        report = diagnose(on_ranks, limits=limits, out=out, watch=watch, echo=echo)
    report = _with_notes(report, _became(Path(report.folder), "rank-0.json", placement.size, in_words))
    return dataclasses.replace(report, findings=tuple(dataclasses.replace(each, fixes=()) for each in report.findings))


def _with_notes(report: Report, notes: Sequence[str]) -> Report:
    kept = tuple(dict.fromkeys([*report.run.notes, *notes]))
    return dataclasses.replace(report, run=dataclasses.replace(report.run, notes=kept))


def _became(folder: Path, pattern: str, number: int, in_words: InWords) -> list[str]:
    """Return what became of the model's calls on ranks, by the account that rank 0 has written last."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    accounts = []
    with contextlib.suppress(OSError, ValueError):  # the rank was ended while it wrote
        accounts = [json.loads(path.read_text(encoding="utf-8")) for path in found[-1:]]
    said = in_words(accounts, size=number) if accounts else []
    return [f"on {number} ranks: {sentence}" for sentence in said]


def tune_on_ranks(
    target: Target, placement: Placement, *, budget_s: float, out: Path | None, watch: Watch,
    echo: Callable[[bytes], None] | None, in_words: InWords,
) -> Report:  # fmt: skip
    """Return the report on `target` with the trial of it on the ranks of `placement`, and the recipe that came of it.

    Raises:
        NothingMeasured: no training step was seen.
        ScriptFailed: the script itself failed.
        Interrupted: Ctrl-C; what was measured is its attribute `report`.
        UsageError: the folder cannot be used, or the command line is not that of a script.
    """
    until = time.monotonic() + budget_s
    with one_at_a_time(), ranked(target, placement) as (on_ranks, _):
        notes = settle_left_over(out, lambda text: watch(Progress(text, 0, 0.0, None)))
        folder = run_folder(out, target.slug)
        limits = Limits(budget_s=max(20.0, budget_s * _DIAGNOSIS))

        def earlier(progress: Progress) -> None:
            watch(dataclasses.replace(progress, share=progress.share * _DIAGNOSIS))

        report = diagnose_in(target, folder, limits=limits, watch=earlier, echo=echo, notes=notes)
        session = _Session(target, on_ranks, placement.ranks, folder, report, until, budget_s, watch)
        try:
            return _with_notes(session.tune(), _became(folder, "trials/*/rank-0.json", placement.size, in_words))
        except KeyboardInterrupt:
            error = Interrupted("Interrupted.", "The trial on ranks was not finished.", f"It is in {folder}.")
            error.report = session.report
            raise error from None


class _Session:
    """One trial of a script on ranks."""

    def __init__(
        self, target: Target, on_ranks: Target, number: int, folder: Path, report: Report, until: float,
        budget_s: float, watch: Watch,
    ) -> None:  # fmt: skip
        self._target, self._on_ranks, self._number = target, on_ranks, number
        self._folder = folder
        self.report = report
        self._until, self._budget_s = until, budget_s
        self._watch = watch
        self._begin = time.monotonic()

    def tune(self) -> Report:
        equality = self._equality()
        comparison, failure = None, None
        if equality.equal is not False:
            comparison, failure = self._comparison()
        verdict, reason = _verdict(equality, comparison, failure)
        trial = Trial(
            number=1,
            candidate=Candidate(
                selection=Selection(RANKS, {"number": self._number}),
                equivalence=Equivalence.ROUNDING,
                ceiling=float(self._number),
            ),
            verdict=verdict,
            reason=reason,
            comparison=comparison,
            equality=equality,
            wall_s=time.monotonic() - self._begin,
        )
        recipe = self._recipe(comparison, equality) if verdict is Verdict.KEPT and comparison is not None else None
        self.report = dataclasses.replace(
            _with_notes(self.report, read_notes(self._folder)),
            trials=(trial,),
            recipe=recipe,
            confirmation=comparison if recipe else None,
        )
        return self.report

    def _equality(self) -> Equality:
        verifier = Verifier(
            self._target, self._folder, watch=lambda steps: self._progress("equal results", steps), other=self._on_ranks
        )
        verifier.prepare(0.4 * self._left_s())
        try:
            return verifier.check((), Equivalence.ROUNDING)
        finally:
            verifier.close()

    def _comparison(self) -> tuple[Comparison | None, Failure | None]:
        """Return what pairs of processes say, and how one has failed, be it after others that have not."""
        pace = Pace.of(self.report)
        bench = Bench(
            self._target, self._folder, lambda steps: self._progress("speed", steps), pace,
            stall_s=_STALL_S, other=self._on_ranks,
        )  # fmt: skip
        measured = Measured()

        def decide(pairs: Sequence[Pair]) -> str:
            return compare(pairs, alpha=_ALPHA, looks=_PAIRS).decision

        bench.one_after_the_other(
            (), (), measured, decide=decide, max_s=max(5.0, self._left_s()), num_pairs=max(_PAIRS)
        )
        return _judged(measured.pairs) if measured.pairs else None, measured.failure

    def _recipe(self, comparison: Comparison, equality: Equality) -> Recipe:
        ranks = RankProof(
            number=self._number,
            equivalence=Equivalence.ROUNDING,
            steps=equality.num_steps,
            speedup=comparison.speedup,
            low=comparison.low,
            high=comparison.high,
        )
        return Recipe(
            script=self._target.name, fixes=(), proof=proof_of(self._target, self.report, comparison), ranks=ranks
        )

    def _left_s(self) -> float:
        return self._until - time.monotonic()

    def _progress(self, stage: str, steps: int) -> None:
        done = 1 - self._left_s() / self._budget_s
        self._watch(Progress(stage, steps, max(_DIAGNOSIS, min(0.99, done)), max(0.0, self._left_s())))


def _judged(pairs: Sequence[Pair]) -> Comparison:
    """Return what these pairs say, as no more can be had; all looks spend the error probability together."""
    if len(pairs) < min(_PAIRS):
        return compare(pairs, alpha=_ALPHA, looks=(len(pairs),))
    found = compare(pairs, alpha=_ALPHA, looks=_PAIRS)
    if found.decision in ("", "undecided"):
        found = dataclasses.replace(found, decision=last_look(pairs, alpha=_ALPHA, looks=_PAIRS) or "undecided")
    return found


def _verdict(equality: Equality, comparison: Comparison | None, failure: Failure | None) -> tuple[Verdict, str]:
    if equality.equal is False:
        return Verdict.RESULTS_DIFFER, equality.reason
    if failure is not None and not failure.of_baseline:
        return failure.verdict, failure.reason
    if failure is not None:
        return Verdict.UNDECIDED, f"the untouched script failed: {failure.reason}"
    if equality.equal is None:
        return Verdict.UNDECIDED, equality.reason
    if comparison is None:
        return Verdict.UNDECIDED, "the budget ended before a process of each was timed"
    verdicts = {"faster": Verdict.KEPT, "slower": Verdict.SLOWER, "not faster": Verdict.NOT_FASTER}
    return verdicts.get(comparison.decision, Verdict.UNDECIDED), ""
