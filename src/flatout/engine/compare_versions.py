"""`flatout compare A B -- SCRIPT`: two versions of a program train side by side, in turns, start after start.

First each version is diagnosed by itself: that tells how long a step and its samples are, and what was found. Then both
are started together and their blocks of steps alternate, as those of a trial do, until the limit can be judged.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flatout.analysis.difference import FEWEST_STEPS, difference, judge_limit
from flatout.analysis.start_comparison import FEWEST_STARTS, Start, of_starts
from flatout.engine.diagnose import Limits, diagnose_in
from flatout.engine.process.leftovers import settle_left_over
from flatout.engine.process.run_folder import one_at_a_time, run_folder
from flatout.engine.process.target import Target, parse_target
from flatout.engine.progress import Progress
from flatout.engine.trial.block_results import Measured, enough
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.timing import Bench
from flatout.errors import FlatoutError, Interrupted, NothingMeasured, UsageError
from flatout.rules.facts.machine_facts import cores_in_use
from flatout.schema.difference import Difference
from flatout.schema.report import Report

__all__ = ["LOOKS", "are_enough", "compare_checkouts", "pace_of", "pairs_in", "target_in"]

LOOKS = (6, 12, 24)
"""Starts after which it is judged whether more are needed; the last is the most that are made."""

PAIRS, PAIRS_S = 14, 12.0
"""Pairs of blocks in a start, at least, and how long they last: about twice as long as it takes to begin one."""

_TURN_S = 0.1
"""Of a block. What others do on the machine changes within tenths of a second: steps of 4 ms correlate by 0.79 with the
next, by 0.33 with the 30th and by 0.07 with the 400th after them (14,422 steps on two shared cores), so short turns see
more alike. Both on one core, starts of equal programs scattered by 1.3 and 1.8 % with blocks of 0.1 and 0.05 s (n=9
and 8), by 4.4 % with 0.4 s (n=10); where the system put them by 3.6 % with 0.4 s (n=16)."""

_ONE_CORE = 1.15
"""A program that uses so many cores at most trains on one thread. Of two that train on several, one start of five with
blocks of 0.1 s took 53 s, the others 6 to 7: they keep the longer blocks."""

_STEPS = 4  # of a block, at least, where a block may be so long
_DIAGNOSES = 0.4  # of the budget, at most, for both
_MOST_FAILURES = 2

Watch = Callable[[Progress], None]


def compare_checkouts(
    before: Path, after: Path, words: Sequence[str], *, limit: float | None, budget_s: float, watch: Watch
) -> Difference:
    """Return how much longer a step of `words` takes in the folder `after` than in the folder `before`.

    Raises:
        UsageError: a side is no folder, or `words` cannot be started there.
        NothingMeasured: fewer than three starts of both came to an end within `budget_s` seconds.
        ScriptFailed: the program failed by itself on one side.
        Interrupted: Ctrl-C.
    """
    start = time.monotonic()
    targets = target_in(before, words), target_in(after, words)
    with one_at_a_time():
        settle_left_over(None, lambda _: None)
        try:
            reports = [
                _diagnosed(name, target, _DIAGNOSES / 2 * budget_s, number, watch)
                for number, (name, target) in enumerate(zip("AB", targets, strict=True))
            ]
            return _Session(targets, reports, limit, start + budget_s, watch).compare()
        except KeyboardInterrupt:
            raise Interrupted("Interrupted.", "There is no result on A and B yet.", "Start it again.") from None


def target_in(folder: Path, words: Sequence[str]) -> Target:
    """Return what `words` stand for in `folder`.

    Raises:
        UsageError: there is no such folder, or nothing to start in it.
    """
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder.",
            "With a script after --, A and B are the folders in which it is started.",
            "Name two checkouts of the code: `git worktree add A main` makes one.",
        )
    place = str(folder.absolute())
    with contextlib.chdir(place):
        return dataclasses.replace(parse_target(words), folder=place)


def are_enough(described: Difference, starts: Sequence[Start], limit: float | None) -> bool:
    """Return whether `starts` are as many as there will be, or are looked at and tell what the limit says."""
    if len(starts) >= max(LOOKS):
        return True
    if len(starts) not in LOOKS:
        return False
    return limit is None or judge_limit(of_starts(described, starts, looks=len(LOOKS)), limit).passed is not None


def pace_of(reports: Sequence[Report]) -> Pace:
    """Return the pace at which two programs take turns, from their recordings.

    Two that train on one thread each share a core and take short turns: their starts scatter less (`_TURN_S`).
    """
    paces = [Pace.of(report) for report in reports]
    slowest = max(paces, key=lambda pace: pace.block_s)
    pace = dataclasses.replace(
        slowest,
        skip=max(pace.skip for pace in paces),
        startup_s=max(pace.startup_s for pace in paces),
        together=any(pace.together for pace in paces),
    )
    if not (all(_on_one_core(report) for report in reports) and hasattr(os, "sched_getaffinity")):
        return pace
    block_s = max(_TURN_S, min(pace.block_s, _STEPS * pace.step_s))
    return dataclasses.replace(pace, block_s=block_s, turn_s=_TURN_S, cores=tuple(sorted(os.sched_getaffinity(0))))


def pairs_in(pace: Pace) -> int:
    """Return how many pairs of blocks a start has."""
    return max(PAIRS, round(PAIRS_S / pace.turns_s))


def _on_one_core(report: Report) -> bool:
    """Return whether all that trains is one thread of one process."""
    run = report.run
    used, alone = cores_in_use(run), run.header.world_size == 1 and run.environment.device_kind == "cpu"
    return alone and used is not None and used <= _ONE_CORE and not any(loader.num_workers for loader in run.loaders)


def _diagnosed(name: str, target: Target, budget_s: float, number: int, watch: Watch) -> Report:
    """Return the diagnosis of one side."""

    def earlier(progress: Progress) -> None:
        share = _DIAGNOSES / 2 * (number + progress.share)
        watch(dataclasses.replace(progress, stage=f"{name}: {progress.stage}", share=share))

    try:
        report = diagnose_in(
            target, run_folder(None, target.slug), limits=Limits(budget_s=budget_s), watch=earlier, echo=None
        )
    except FlatoutError as error:
        error.fact = f"{name}, {target.folder}: {error.fact}"
        raise
    if len(report.breakdown.step_ms) < FEWEST_STEPS:
        raise NothingMeasured(
            f"{name} made {len(report.breakdown.step_ms)} steady steps, fewer than {FEWEST_STEPS}.",
            "A comparison needs more.",
            "Let the script train for longer.",
        )
    return report


class _Session:
    """Starts of both sides under way."""

    def __init__(
        self, targets: tuple[Target, Target], reports: Sequence[Report], limit: float | None, until: float, watch: Watch
    ) -> None:
        pace = pace_of(reports)
        self._pairs = pairs_in(pace)
        self._described = difference(reports[:1], reports[1:])
        folder = run_folder(None, f"{targets[0].slug}-compared")
        self._bench = Bench(targets[0], folder, self._progress, pace, other=targets[1])
        self._apart = pace.together  # one after the other: ranks do not take turns
        self._limit = limit
        self._begin, self._until = time.monotonic(), until
        self._watch = watch
        self._starts: list[Start] = []
        self._failures: list[str] = []

    def compare(self) -> Difference:
        while not are_enough(self._described, self._starts, self._limit):
            before = time.monotonic()
            self._add(self._start())
            took_s = time.monotonic() - before
            if time.monotonic() + took_s > self._until or len(self._failures) > _MOST_FAILURES:
                break
        if len(self._starts) < FEWEST_STARTS:
            raise self._too_few()
        return of_starts(self._described, self._starts, looks=len(LOOKS))

    def _start(self) -> Measured:
        """Start both once, whichever came second the last time first."""
        measured, left_s = Measured(), self._until - time.monotonic()
        if self._apart:
            self._bench.one_after_the_other((), (), measured, decide=enough(1), max_s=left_s, num_pairs=1)
        else:
            self._bench.side_by_side(
                (), (), measured, looks=(self._pairs,), decide=enough(self._pairs), max_s=left_s,
                swap=len(self._starts) % 2 == 1,
            )  # fmt: skip
        return measured

    def _add(self, measured: Measured) -> None:
        if measured.pairs and (measured.failure is None or len(measured.pairs) >= self._pairs // 2):
            self._starts.append(Start(tuple(measured.pairs), tuple(measured.phases)))
        elif measured.failure is not None or time.monotonic() < self._until:
            failure = measured.failure
            self._failures.append(
                failure.reason if failure else "the training ended before two blocks of steps were complete"
            )
            self._apart = True  # both at once may be too much: one of each after the other

    def _too_few(self) -> NothingMeasured:
        if self._failures:
            return NothingMeasured(
                f"{len(self._starts)} starts of A and B completed: {self._failures[-1]}.",
                f"At least {FEWEST_STARTS} are needed.",
                "Each trained alone before. Look for something that two at once cannot share (a port, a file, memory), "
                "and let the script train for more than a few seconds.",
            )
        return NothingMeasured(
            f"{len(self._starts)} starts of A and B fitted into the time given; at least {FEWEST_STARTS} are needed.",
            "Fewer do not show how large the noise is.",
            "Give more time: --budget 15m.",
        )

    def _progress(self, steps: int) -> None:
        spent = (time.monotonic() - self._begin) / max(1.0, self._until - self._begin)
        share = max(len(self._starts) / max(LOOKS), min(1.0, spent))
        stage = f"start {len(self._starts) + 1} of at most {max(LOOKS)}"
        self._watch(Progress(stage, steps, _DIAGNOSES + (1 - _DIAGNOSES) * share, None))
