"""The proof of a recipe: what each fix brings to the whole, and the whole against the untouched script."""

import dataclasses
import datetime
import math
import statistics
import time
from collections.abc import Sequence

from flatout import __version__
from flatout.analysis.judge import CONFIRM_LOOKS, compare, confirm
from flatout.analysis.whole_gain import Gains, whole_gain
from flatout.engine.process.edit_seal import seal
from flatout.engine.process.target import Target, arguments_digests, script_digest
from flatout.engine.trial.block_results import Measured, StepAndBetween, enough, step_and_between
from flatout.engine.trial.timing import Bench
from flatout.fixes.core.catalog import from_second_pass
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.report import Report
from flatout.schema.trial import Comparison, Selection, Trial

__all__ = ["CONFIRM_PAIRS", "CONFIRM_STARTS", "EPOCH_PAIRS", "Confirmation", "make_recipe", "proof_of"]

CONFIRM_PAIRS, CONFIRM_STARTS = CONFIRM_LOOKS[0] // 2, 2
"""Pairs of blocks before the first look, in each of two starts, the second with the sides swapped."""

EPOCH_PAIRS = 4
"""Of whole epochs, before the first look: these are long, and hold what lies between steps."""

_EPOCH_LOOKS = (EPOCH_PAIRS, 8, 16)
_LEFT_OUT_ALPHA = 0.01
_LEFT_OUT_LOOKS = (8,)
_FEWEST_PAIRS = 3
_FIRST_PAIRS, _FIRST_EPOCH_S = 6, 10.0  # of the first epoch, and about what they take
_FIRST_BLOCKS = 16  # of which an epoch has room for, the first steps left out: blocks are shorter in a short one
_LEAST_START_S, _MOST_START_S = 8.0, 30.0  # what a start of two processes takes, it gets though the budget ends
_LEAST_GAIN = 1.01  # a fix without which the recipe is as fast, or nearly, is left out of it


class Confirmation:
    """Measures a recipe that the trials have put together."""

    def __init__(
        self, bench: Bench, *, together: bool, until: float, start_s: float = 0.0, epoch_s: float = math.inf,
        epoch_steps: int = 0,
    ) -> None:  # fmt: skip
        """Take the bench, whether the script is one of several processes, and when the budget ends.

        `start_s`: what a start of two processes and its pairs take, `epoch_s`: the steps of an epoch of the untouched
        script. `epoch_steps`: of blocks that are whole epochs, for a recipe that shortens what lies between them.
        """
        self._bench = bench
        self._together = together
        self._until = until
        self._start_s = start_s
        self._epoch_s = epoch_s
        self._epoch_steps = epoch_steps
        self._once_s: list[float] = []
        self._parts = StepAndBetween()

    def leave_one_out(self, kept: Sequence[Trial], *, whole_s: float) -> list[tuple[Trial, Comparison]]:
        """Return the fixes without which the recipe is as fast as with them, as far as they can be switched off.

        It takes none of the `whole_s` seconds that the whole recipe needs afterwards.
        """
        switchable = [trial for trial in kept if trial.candidate.switchable]
        left_s = self._until - time.monotonic() - whole_s
        if len(kept) < 2 or not switchable or left_s < 5:
            return []
        measured = [Measured() for _ in switchable]
        self._bench.arms(
            [trial.candidate.selection for trial in kept],
            [(trial.candidate.selection,) for trial in switchable],
            measured,
            alpha=_LEFT_OUT_ALPHA,
            max_s=min(left_s, 20.0),
            without=True,
        )
        found = []
        for trial, each in zip(switchable, measured, strict=True):
            comparison = compare(each.pairs, alpha=_LEFT_OUT_ALPHA, looks=_LEFT_OUT_LOOKS)
            if len(each.pairs) >= min(_LEFT_OUT_LOOKS) and 1 / comparison.speedup < _LEAST_GAIN:
                found.append((trial, comparison))
        return found[:1]  # two that stand in for each other must not both go

    def whole(self, fixes: Sequence[Selection]) -> Comparison | None:
        """Return the comparison of the recipe with the untouched script in fresh processes, None without a pair.

        There are more looks, each of more pairs, as long as nothing is decided and time is left.
        """
        measured = Measured()
        for look, wanted in enumerate(_EPOCH_LOOKS if self._epoch_steps else CONFIRM_LOOKS):
            start = time.monotonic()
            self._measure(fixes, measured, wanted)
            found = confirm(measured.pairs, look)
            more_s = 2 * (time.monotonic() - start)  # the next look takes about as long again, with larger ones twice
            if found.decision != "undecided" or len(measured.pairs) < wanted or time.monotonic() + more_s > self._until:
                break
        self._once_s = measured.once_s
        if self._epoch_steps:
            self._parts, found = step_and_between(measured), dataclasses.replace(found, of_epochs=True)
        return found if len(measured.pairs) >= _FEWEST_PAIRS else None

    def gains(self, fixes: Sequence[Selection], later: float) -> Gains:
        """Return what the recipe gives, part by part of a training; `later`: what was confirmed of its steps.

        What it gives in the first epoch and how much longer its start takes are seen where fixes act as in a training;
        of fixes that act alike from the first step on, the confirmation has shown both.
        """
        parts = self._parts
        later = parts.step if self._epoch_steps else later
        if not any(map(from_second_pass, fixes)):
            return Gains(later=later, first=later, once_s=_typical(self._once_s), between=parts.between)
        measured = Measured()
        left_s = self._until - time.monotonic()
        if not self._together and left_s > _FIRST_EPOCH_S / 2:
            self._bench.as_in_a_training(self._epoch_s / _FIRST_BLOCKS).side_by_side(
                (), fixes, measured, looks=(_FIRST_PAIRS,), decide=enough(_FIRST_PAIRS),
                max_s=min(left_s, 3 * _FIRST_EPOCH_S),
            )  # fmt: skip
        pairs = measured.first_pairs
        first = (
            compare(pairs, alpha=_LEFT_OUT_ALPHA, looks=_LEFT_OUT_LOOKS).speedup
            if len(pairs) >= _FEWEST_PAIRS
            else None
        )
        return Gains(later=later, first=first, once_s=_typical(measured.once_s))  # between: seen of later passes alone

    def _measure(self, fixes: Sequence[Selection], measured: Measured, wanted: int) -> None:
        """Add pairs up to `wanted`, half of them in each of two starts, the second with the sides swapped."""
        half = (wanted - len(measured.pairs)) // 2
        for swap in (False, True):
            enough_of_them = enough(wanted - (0 if swap else half))
            least_s = min(max(_LEAST_START_S, self._start_s), _MOST_START_S)
            left_s = max(least_s, self._until - time.monotonic())
            if self._together or measured.failure:
                measured.failure = None
                self._bench.one_after_the_other(
                    (), fixes, measured, decide=enough_of_them, max_s=left_s, num_pairs=CONFIRM_PAIRS,
                    epoch_steps=self._epoch_steps,
                )  # fmt: skip
            else:
                self._bench.side_by_side(
                    (), fixes, measured, looks=(half,), decide=enough_of_them, max_s=left_s, swap=swap,
                    epoch_steps=self._epoch_steps,
                )  # fmt: skip
            measured.decision = ""
            if self._until - time.monotonic() < 0:
                return


def _typical(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) if seconds else 0.0


def proof_of(target: Target, report: Report, confirmation: Comparison) -> Proof:
    """Return where and when `confirmation` was measured: now, on the machine of `report`."""
    environment = report.run.environment
    return Proof(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        flatout=__version__,
        python=environment.python,
        torch=environment.torch,
        device=environment.device,
        num_cpus=environment.num_cpus,
        script_digest=script_digest(target),
        world_size=report.run.header.world_size,
        speedup=confirmation.speedup,
        low=confirmation.low,
        high=confirmation.high,
        num_pairs=len(confirmation.pairs),
        baseline_ms=sum(pair.baseline_ms for pair in confirmation.pairs) / len(confirmation.pairs),
        samples={loader.name: loader.num_samples for loader in report.run.loaders if loader.is_training},
    )


def make_recipe(
    target: Target, report: Report, kept: Sequence[Trial], confirmation: Comparison, gains: Gains
) -> Recipe:
    """Return the recipe of the fixes in `kept`, proven by `confirmation` on the machine of `report`."""
    proof = proof_of(target, report, confirmation)
    fixes = tuple(
        Kept(
            selection=trial.candidate.selection,
            equivalence=trial.candidate.equivalence,
            speedup=trial.comparison.speedup if trial.comparison else 1.0,
            low=trial.comparison.low if trial.comparison else 1.0,
            high=trial.comparison.high if trial.comparison else 1.0,
            seal=seal(trial.candidate.selection, trial.candidate.equivalence),
        )
        for trial in kept
    )
    whole = whole_gain(report.run, report.breakdown, gains)
    if whole is not None:
        arguments, other_arguments = arguments_digests(target)
        whole = dataclasses.replace(whole, arguments=arguments, other_arguments=other_arguments)
    return Recipe(script=target.name, fixes=fixes, proof=proof, whole=whole)
