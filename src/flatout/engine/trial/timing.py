"""Timed executions of a tune: arms inside one process, two processes side by side, or one after the other."""

import copy
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flatout.engine.process.launch import Execution, Outcome
from flatout.engine.process.target import Target
from flatout.engine.trial.block_results import (
    Measured,
    first_epoch_of_turns,
    longer_start_of_turns,
    pairs_of_turns,
    phases_of_turns,
    read_parts,
    slowest_block,
    take_record,
)
from flatout.engine.trial.execution_watch import Ended, Follower, trial_failure
from flatout.engine.trial.pace import Pace
from flatout.errors import FlatoutError
from flatout.fixes.core.catalog import find_arm
from flatout.fixes.source.source_edit import edited_files
from flatout.schema.codec import write_order
from flatout.schema.files import write_whole
from flatout.schema.order import Order, TimingOrder
from flatout.schema.trial import Pair, Selection

__all__ = ["Bench"]

_FEW_PAIRS, _SHORTEST_BLOCK_S = 8, 0.1  # of a start: a training so short gets shorter blocks
_SIDE_BY_SIDE = (
    "import sys; sys.path.insert(0, sys.argv.pop()); "
    "from flatout.engine.process.side_by_side import main; sys.exit(main())"
)
_SOURCE = str(Path(__file__).resolve().parents[3])
_SILENCE_S, _SILENCE_STEPS = 15.0, 20  # without a new record for this and so many steps, all is not well
_STALL_S = 30.0  # and so much longer, an execution hangs and is ended; compilation gets more


class Bench:
    """Runs a script's timed executions in numbered folders below one of a tune."""

    def __init__(
        self,
        target: Target,
        folder: Path,
        watch: Callable[[int], None],
        pace: Pace,
        *,
        stall_s: float = _STALL_S,
        other: Target | None = None,
        as_trained: bool = False,
    ) -> None:
        """Take the script, the tune's folder, who follows, and what is known of the script's steps.

        `other` is what the second of two processes runs, where that is another program. `as_trained`: fixes act as in
        a training; otherwise those that keep samples show the speed of later passes over the data at once.
        """
        self._target = target
        self._targets = target, other or target
        self._folder = folder / "trials"
        self._watch = watch
        self._pace = pace
        self._as_trained = as_trained
        self._silence_s = _SILENCE_S + _SILENCE_STEPS * pace.step_s
        self._stall_s = stall_s

    def as_in_a_training(self, block_s: float) -> "Bench":
        """Return the same whose fixes act as in a training from its first step on, with blocks of at most `block_s`."""
        other = copy.copy(self)
        other._as_trained = True
        pace = self._pace
        other._pace = replace(pace, turn_s=min(pace.turn_s, block_s), block_s=min(pace.block_s, block_s))
        return other

    # -- inside one process -------------------------------------------------------------------------------------

    def arms(
        self,
        base: Sequence[Selection],
        arms: Sequence[tuple[Selection, ...]],
        measured: Sequence[Measured],
        *,
        alpha: float,
        max_s: float,
        without: bool = False,
        looks: tuple[int, ...] = (),
    ) -> Outcome:
        """Time `arms` on top of `base` in one process, filling `measured`; stops at the first that is faster."""
        timing = self._timing(arms, measured, alpha=alpha, max_s=max_s)
        timing = replace(timing, without=without, looks=looks or timing.looks)
        limit_s = 1.5 * max_s + max(30.0, 2 * self._pace.startup_s) + self._silence_s
        return self._in_one(base, timing, measured, limit_s)

    def ceilings(
        self,
        arms: Sequence[tuple[Selection, ...]],
        measured: Sequence[Measured],
        *,
        looks: tuple[int, ...],
        max_s: float,
        alone_s: float,
        within_s: float,
        drain: int = 0,
    ) -> Outcome:
        """Time every one of `arms` in one process, then the loader alone, filling `measured`, which has one more.

        `max_s` is for the steps of the arms, `within_s` for all of it with the start of the script; so many steps as
        `drain` says are left out besides after an arm was switched off.
        """
        timing = self._timing(arms, measured, alpha=0.02, max_s=max_s)
        timing = replace(timing, looks=looks, ceilings=True, alone_s=alone_s, drain=drain)
        return self._in_one((), timing, measured, within_s)

    def _timing(
        self, arms: Sequence[tuple[Selection, ...]], measured: Sequence[Measured], *, alpha: float, max_s: float
    ) -> TimingOrder:
        return TimingOrder(
            arms=tuple(arms),
            alpha=alpha,
            max_s=max_s,
            block_s=self._pace.block_s,
            skip=self._pace.skip,
            prior=tuple(tuple(each.pairs) for each in measured),
            seed=self._seed(),
        )

    def _in_one(
        self, base: Sequence[Selection], timing: TimingOrder, measured: Sequence[Measured], limit_s: float
    ) -> Outcome:
        outcome, folder = self._execute(timing, base, limit_s, [one for arm in timing.arms for one in arm])
        current = -1
        for record in (record for records in read_parts(folder) for record in records):
            current = take_record(record, measured, current)
        if 0 <= current < len(measured) and not measured[current].decision:
            measured[current].failure = trial_failure(outcome, folder, self._silence_s)
            if outcome.stopped_by == "budget" and measured[current].failure is None:
                measured[current].decision = "undecided"
                measured[current].reason = f"the {outcome.wall_s:.0f} s that were left for it are over"
        return outcome

    # -- two processes ------------------------------------------------------------------------------------------

    def side_by_side(
        self, base: Sequence[Selection], arm: Sequence[Selection], measured: Measured, *,
        looks: tuple[int, ...], decide: Callable[[Sequence[Pair]], str], max_s: float, swap: bool = False,
        epoch_steps: int = 0, skip: int = 0,
    ) -> None:  # fmt: skip
        """Time a process under `arm` against one under `base`, both alive, their blocks in turns.

        `decide(pairs)` is asked after each pair; any answer but "" ends it. A training that comes to its end before
        that is started again, with shorter blocks, as long as there is time for one more start.
        """
        until, timing = (
            time.monotonic() + max_s,
            TimingOrder(block_s=max(self._pace.turn_s, self._pace.block_s), looks=looks),
        )
        timing = replace(timing, skip=max(self._pace.skip, skip), epoch_steps=epoch_steps)
        while True:
            before = len(measured.pairs)
            outcome = self._in_turns((base, arm), measured, timing, decide, until, swap=swap)
            if measured.decision or measured.failure or outcome.stopped_by == "budget":
                return
            few = len(measured.pairs) - before < _FEW_PAIRS
            if (few and timing.block_s <= _SHORTEST_BLOCK_S) or until - time.monotonic() < 1.2 * outcome.wall_s:
                return
            timing = replace(timing, block_s=max(_SHORTEST_BLOCK_S, timing.block_s / 4) if few else timing.block_s)

    def _in_turns(
        self, sides: tuple[Sequence[Selection], ...], measured: Measured, timing: TimingOrder,
        decide: Callable[[Sequence[Pair]], str], until: float, *, swap: bool,
    ) -> Outcome:  # fmt: skip
        """Start both sides once and add the pairs that they finish."""
        folder = self._next()
        (folder / "turns").mkdir()
        cores = self._pace.cores
        core = cores[int(folder.name) % len(cores)] if cores else -1
        timing = replace(timing, turns=str(folder / "turns"), seed=self._seed(), core=core)
        settles_s = self._write_sides(folder, timing, sides, swap=swap)
        command = (sys.executable, "-I", "-c", _SIDE_BY_SIDE, str(folder / "commands.json"), _SOURCE)
        both = Target(self._target.name, command)
        write_order(self._order(folder, timing, ()), folder / "order.json")
        before = list(measured.pairs)

        def decided() -> bool:
            measured.pairs = [*before, *pairs_of_turns(folder, measured)]
            measured.decision = decide(measured.pairs) if len(measured.pairs) > len(before) else ""
            return bool(measured.decision)

        outcome = self._run(both, folder, until - time.monotonic(), decided, {}, settles_s)
        decided()
        measured.phases += phases_of_turns(folder)
        measured.first_pairs += first_epoch_of_turns(folder)
        longer_s = longer_start_of_turns(folder)
        measured.once_s += [] if longer_s is None else [longer_s]
        measured.wall_s += outcome.wall_s
        if not measured.decision and outcome.stopped_by != "budget":
            measured.failure = trial_failure(outcome, folder, self._silence_s)
        return outcome

    def _write_sides(
        self, folder: Path, timing: TimingOrder, sides: tuple[Sequence[Selection], ...], *, swap: bool
    ) -> float:
        """Write the order of each of two processes and what starts them; return how long they may take to settle."""
        spec, longest_s = [], 0.0
        for side, fixes in enumerate(sides):
            order = self._order(folder, replace(timing, side=side), fixes)
            write_order(order, folder / f"order-{side}.json")
            environment, settles_s = _needs(fixes)
            environment = {**self._pace.environment, **environment}
            environment["FLATOUT_ORDER"] = str(folder / f"order-{side}.json")
            target = self._targets[side]
            command, working = list(target.command), target.folder or None
            spec.append({"command": command, "working": working, "environment": environment})
            longest_s = max(longest_s, settles_s)
        write_whole(folder / "commands.json", json.dumps(spec[::-1] if swap else spec).encode())
        return longest_s

    def one_after_the_other(
        self, base: Sequence[Selection], arm: Sequence[Selection], measured: Measured, *,
        decide: Callable[[Sequence[Pair]], str], max_s: float, num_pairs: int, epoch_steps: int = 0,
    ) -> None:  # fmt: skip
        """Time processes under `base` and under `arm` alternately, each as one block."""
        start, longest_s = time.monotonic(), [0.0, 0.0]
        for number in range(num_pairs):
            blocks = {}
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                left_s = max_s - (time.monotonic() - start)
                timing = TimingOrder(
                    block_s=self._pace.alone_s, skip=self._pace.skip, side=side, epoch_steps=epoch_steps
                )
                outcome, folder = self._execute(timing, arm if side else base, max(5.0, left_s), (), side)
                measured.wall_s += outcome.wall_s
                blocks[side] = slowest_block(folder, measured)
                longest_s[side] = max(longest_s[side], outcome.wall_s if blocks[side] is not None else 0.0)
                if blocks[side] is None:
                    hangs = 0 < 3 * longest_s[side] < outcome.wall_s - self._silence_s  # others have shown how long
                    over = outcome.stopped_by == "budget" and not hangs
                    failure = None if over else trial_failure(outcome, folder, self._silence_s)
                    measured.failure = failure and replace(failure, of_baseline=not side)
                    measured.reason = "the budget ended" if over else measured.reason
                    return
            measured.pairs.append(Pair(blocks[0] or 0.0, blocks[1] or 0.0))
            measured.decision = decide(measured.pairs)
            if measured.decision or time.monotonic() - start > max_s:
                return

    # -- one execution ------------------------------------------------------------------------------------------

    def _execute(
        self, timing: TimingOrder, fixes: Sequence[Selection], budget_s: float, ready: Sequence[Selection],
        side: int = 0,
    ) -> tuple[Outcome, Path]:  # fmt: skip
        folder = self._next()
        if timing.arms and self._pace.together:
            (folder / "turns").mkdir()
            timing = replace(timing, turns=str(folder / "turns"))
        write_order(self._order(folder, timing, fixes), folder / "order.json")
        environment, settles_s = _needs([*fixes, *ready])
        environment = {**self._pace.environment, **environment}
        return self._run(self._targets[side], folder, budget_s, None, environment, settles_s), folder

    def _run(
        self, target: Target, folder: Path, budget_s: float, decided: Callable[[], bool] | None,
        environment: Mapping[str, str], settles_s: float,
    ) -> Outcome:  # fmt: skip
        execution = Execution(target, folder, folder / "order.json", "timing", environment)
        follower = Follower(folder, self._watch, decided, stall_s=self._stall_s + self._silence_s + settles_s)
        try:
            outcome = execution.run(budget_s, follower)
        except Ended as end:
            outcome = Outcome(stopped_by=str(end), wall_s=follower.elapsed_s)
        outcome.quiet_s = follower.quiet_s
        return outcome

    def _order(self, folder: Path, timing: TimingOrder, fixes: Sequence[Selection]) -> Order:
        return Order(
            mode="timing",
            folder=str(folder),
            script=self._target.name,
            first_step=self._pace.first_step,
            launched_unix_s=time.time(),
            fixes=tuple(fixes),
            edited=edited_files(fixes, self._target.folders).files,
            timing=replace(timing, as_trained=self._as_trained),
        )

    def _seed(self) -> int:
        """Return another number for each execution, the same when a tune is made again."""
        return 1000 * (1 + sum(1 for _ in self._folder.glob("*")))

    def _next(self) -> Path:
        taken = [int(each.name) for each in self._folder.glob("*") if each.name.isdecimal()]
        folder = self._folder / f"{max(taken, default=0) + 1:04d}"
        (folder / "parts").mkdir(parents=True)
        return folder


def _needs(fixes: Iterable[Selection]) -> tuple[dict[str, str], float]:
    """Return the variables that `fixes` want set, and the seconds they may take to settle."""
    added: dict[str, str] = {}
    settles_s = 0.0
    for selection in fixes:
        fix = find_arm(selection.fix)
        if fix is None:
            raise FlatoutError(f"There is no fix {selection.fix!r}.")
        added |= fix.environment
        settles_s += fix.settles_s
    return added, settles_s
