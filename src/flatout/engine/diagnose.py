"""`flatout diagnose`: a timed run, a deep run, one report."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.analysis.breakdown import account
from flatout.analysis.pauses import steps_to_a_pause
from flatout.engine.offered_fixes import with_offered_fixes
from flatout.engine.process.collect import assemble, collect_run
from flatout.engine.process.failure import explain_nothing, script_failure
from flatout.engine.process.launch import Execution, Outcome, read_notes
from flatout.engine.process.leftovers import settle_left_over
from flatout.engine.process.run_folder import one_at_a_time, run_folder
from flatout.engine.process.target import Target
from flatout.engine.progress import Progress
from flatout.engine.trial.headroom import measure_headroom
from flatout.errors import FlatoutError, Interrupted
from flatout.rules import examine
from flatout.schema.codec import RUN_FILE, write_order, write_run
from flatout.schema.order import Order
from flatout.schema.phase import Phase
from flatout.schema.report import Report
from flatout.schema.run import Ceiling, Run

__all__ = ["Limits", "conclude", "diagnose", "diagnose_in", "recover"]

Watch = Callable[[Progress], None]

_TYPICAL_S = {"timed": 9.0, "deep": 8.0}  # of a script with short steps, imports included: for the progress bar
_SHARES = {"timed": (0.0, 0.55), "deep": (0.55, 0.97)}
_HEADROOM, _HEADROOM_S = 0.1, 30.0  # of the budget, and at most: of steps, besides the start of the script
_LEAVING_S = 3.0
_STAGES = {"timed": "timed run", "deep": "deep run"}


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a diagnosis may take: steps of the timed run (None: until sound), seconds in all.

    `headroom`: also hold the input at its successive places, in one more start of the script, with a tenth of the
    budget. A tune does without: it measures what its candidates give, and not what they could.
    """

    steps: int | None = None
    budget_s: float = 300.0
    headroom: bool = False
    all_devices: bool = False  # benchmarks: watch copies and waits on a machine without an accelerator


def diagnose(
    target: Target,
    *,
    limits: Limits,
    out: Path | None,
    watch: Watch,
    echo: Callable[[bytes], None] | None,
) -> Report:
    """Run `target` twice under observation and return what was found.

    Raises:
        NothingMeasured: no training step was seen; the message says what to do.
        ScriptFailed: the script itself failed; what was measured before is its attribute `report`.
        Interrupted: Ctrl-C; what was measured is its attribute `report`.
        UsageError: the folder cannot be used.
    """
    with one_at_a_time():
        notes = settle_left_over(out, lambda text: watch(Progress(text, 0, 0.0, None)))
        folder = run_folder(out, target.slug)
        session = _Session(target, folder, limits, watch, echo, notes)
        try:
            return session.diagnose()
        except KeyboardInterrupt:
            raise session.told(_with_report(Interrupted("Interrupted."), session)) from None


def diagnose_in(
    target: Target, folder: Path, *, limits: Limits, watch: Watch, echo: Callable[[bytes], None] | None,
    notes: Sequence[str] = (),
) -> Report:  # fmt: skip
    """Diagnose `target` in `folder`, which the caller holds; Ctrl-C comes through as it is.

    Raises:
        NothingMeasured, ScriptFailed: as `diagnose`.
    """
    return _Session(target, folder, limits, watch, echo, notes).diagnose()


def _with_report(error: FlatoutError, session: "_Session") -> FlatoutError:
    error.report = session.report()
    measured = error.report is not None
    error.meaning = "What was measured is kept." if measured else "Nothing was measured yet."
    error.advice = f"It is in {session.folder}."
    return error


def conclude(run: Run, folder: Path) -> Report:
    """Return the report on a Run: its account, its findings."""
    breakdown = account(run)
    found = examine(run, breakdown, run.ceilings)
    run = dataclasses.replace(run, notes=(*run.notes, *found.notes))
    findings = with_offered_fixes(found.findings, run)
    return Report(run=run, breakdown=breakdown, headroom=run.ceilings, findings=findings, folder=str(folder))


def recover(folder: Path) -> bool:
    """Write the recording of a diagnosis that was killed, from its parts; return whether there was a step in them."""
    run = assemble(folder) or collect_run(folder / "parts", "whole")
    if run is not None and run.steps:
        write_run(run, folder / RUN_FILE)
    return run is not None and bool(run.steps)


class _Session:
    """One diagnosis under way."""

    def __init__(
        self,
        target: Target,
        folder: Path,
        limits: Limits,
        watch: Watch,
        echo: Callable[[bytes], None] | None,
        notes: Sequence[str],
    ) -> None:
        self.target = target
        self.folder = folder
        self._limits = limits
        self._watch = watch
        self._echo = echo
        self._start = time.monotonic()
        self._timed: Run | None = None
        self._ceilings: tuple[Ceiling, ...] = ()
        self._notes = list(notes)

    def diagnose(self) -> Report:
        timed = self._execute("timed", share=0.65)
        self._timed = self._collected("timed", timed)
        if self._timed is None or not self._timed.steps:
            raise self.told(explain_nothing(self.target, self.folder, self._timed, timed))
        failure = script_failure(self.target, self.folder, self._timed, timed)
        if failure is None and self._left_s() > 3:
            self._look_deeper()
            self._measure_headroom()
        self._watch(Progress("conclusions", len(self._timed.steps), 0.98, 0.0))
        report = self.report()
        assert report is not None
        if failure is not None:
            failure.report = report
            raise failure
        return report

    def _look_deeper(self) -> None:
        """Make the deep run; what it cannot do costs the places by line, never the timed run."""
        try:
            self._execute("deep", share=1.0)
        except (FlatoutError, OSError) as error:
            self._notes.append(f"the deep run failed: {error}")

    def _measure_headroom(self) -> None:
        """Hold the input in one more start of the script, where it is worth it and there is time.

        Whoever says how many steps are enough gets those, and no more. What fails here costs the ceilings only.
        """
        wanted = self._limits.headroom and self._limits.steps is None
        run = assemble(self.folder, self._timed) if wanted else None
        if run is None or len(run.ranks) > 1:
            return
        breakdown = account(run)
        start_s = breakdown.outside_s(Phase.STARTUP)
        steps_s = min(_HEADROOM_S, _HEADROOM * self._limits.budget_s)
        within_s = self._left_s() - _LEAVING_S
        if within_s < 1.5 * start_s + steps_s:
            return

        def watch(steps: int) -> None:
            self._watch(Progress("ceilings", steps, 0.97, max(1.0, start_s + steps_s / 2)))

        try:
            self._ceilings = measure_headroom(
                self.target, self.folder, run, breakdown, max_s=steps_s, within_s=within_s, watch=watch
            )
        except Exception as error:
            self._notes.append(f"the ceilings were not measured: {type(error).__name__}: {error}")

    def report(self) -> Report | None:
        """Write and return what is known so far; None when no step was measured."""
        run = assemble(self.folder, self._timed)
        if run is None:
            return None
        lost = self.folder / "files" / "not-restored.txt"
        if lost.exists():
            self._notes.append(f"some of the script's files could not be restored: see {lost}")
        notes = dict.fromkeys([*run.notes, *self._notes, *read_notes(self.folder)])
        run = dataclasses.replace(run, notes=tuple(notes), ceilings=self._ceilings)
        with contextlib.suppress(OSError):  # a full disk: the parts are there, and the report is shown all the same
            write_run(run, self.folder / RUN_FILE)
        return conclude(run, self.folder)

    def told(self, error: FlatoutError) -> FlatoutError:
        """Return `error` with what is to be said about files, where no report says it."""
        if error.report is None:
            error.meaning = "\n".join(filter(None, [error.meaning, *self._notes, *read_notes(self.folder)]))
        return error

    def _left_s(self) -> float:
        return self._limits.budget_s - (time.monotonic() - self._start)

    def _execute(self, mode: str, share: float) -> Outcome:
        order = Order(
            mode=mode,
            folder=str(self.folder),
            script=self.target.name,
            steps=self._limits.steps,
            first_step=self._timed.first_step if self._timed is not None else 1,
            least_steps=steps_to_a_pause(self._timed) if self._timed is not None else 0,
            max_s=max(1.0, self._left_s() * share * 0.7),
            launched_unix_s=time.time(),
            all_devices=self._limits.all_devices,
        )
        path = self.folder / f"order-{mode}.json"
        write_order(order, path)
        execution = Execution(self.target, self.folder, path, mode)
        follower = _Follower(mode, self._watch, self._echo, execution.log)
        return execution.run(self._left_s() * share, follower)

    def _collected(self, mode: str, outcome: Outcome) -> Run | None:
        run = collect_run(self.folder / "parts", mode, outcome.utilization)
        if run is None:
            return None
        end = dataclasses.replace(run.end, exit_code=outcome.exit_code)
        return dataclasses.replace(run, end=end)


class _Follower:
    """Turns steps and seconds of one execution into progress, and passes its output on."""

    def __init__(self, mode: str, watch: Watch, echo: Callable[[bytes], None] | None, log: Path) -> None:
        self._mode = mode
        self._watch = watch
        self._echo = echo
        self._log = log
        self._offset = 0

    def __call__(self, steps: int, elapsed_s: float) -> None:
        first, last = _SHARES[self._mode]
        typical = _TYPICAL_S[self._mode]
        done = min(0.97, elapsed_s / typical) if steps else min(0.4, elapsed_s / typical)
        remaining = max(1.0, typical - elapsed_s) + (_TYPICAL_S["deep"] if self._mode == "timed" else 0.0)
        note = "" if steps else "waiting for the first step"
        self._watch(Progress(_STAGES[self._mode], steps, first + (last - first) * done, remaining, note))
        if self._echo is not None:
            with contextlib.suppress(OSError), self._log.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
                self._offset += len(data)
                if data:
                    self._echo(data)
