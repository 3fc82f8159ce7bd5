"""`flatout tune`: diagnose, try the cures, keep what is faster and leaves results equal, confirm the whole."""

import contextlib
import dataclasses
import datetime
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.engine.diagnose import Limits, conclude, diagnose_in
from flatout.engine.process.launch import read_notes
from flatout.engine.process.leftovers import settle_left_over
from flatout.engine.process.own_key import own_key
from flatout.engine.process.run_folder import one_at_a_time, run_folder
from flatout.engine.process.target import Target, script_digest
from flatout.engine.progress import Progress
from flatout.engine.trial.candidates import candidates
from flatout.engine.trial.edit_candidates import ProposedEdit
from flatout.engine.trial.interrupted_tune import taken_up
from flatout.engine.trial.journal import TrialJournal, TuneState, find_unfinished, read_state, write_state
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.search import Search
from flatout.engine.trial.untried import untried
from flatout.errors import FlatoutError, Interrupted
from flatout.rules.facts.machine_facts import busy_in_words, slowdown
from flatout.schema.report import Report
from flatout.schema.secrets import digest, masked_words
from flatout.schema.trial import Equivalence, Selection, Trial, Verdict
from flatout.units import format_seconds

__all__ = ["Propose", "TuneLimits", "tune", "undecided_in_time"]

_DIAGNOSIS = 0.35  # of the budget, at most
_LONGER = 3  # times the budget, where it was too short
_WORTH_SAYING = 1.1  # times the budget

Watch = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class TuneLimits:
    """How long a tune may take, and what it may try."""

    budget_s: float = 300.0
    patience: float = 1.0  # times as long it may take where other programs use the machine
    only: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    equal: Equivalence = Equivalence.PRECISION
    edits: tuple[Selection, ...] = ()  # of the source, that the user has given


Propose = Callable[[Report], Sequence[ProposedEdit]]
"""From the diagnosis, the edits of the source that cure findings of it."""


def tune(
    target: Target, *, limits: TuneLimits, out: Path | None, watch: Watch, echo: Callable[[bytes], None] | None,
    propose: Propose = lambda report: (),
) -> Report:  # fmt: skip
    """Return the report on `target` with every trial made and the recipe that came of them.

    A tune of the same command that was interrupted is taken up where it ended. `propose` names edits of the source that
    are to be tried besides those of the user's.

    Raises:
        NothingMeasured: no training step was seen.
        ScriptFailed: the script itself failed.
        Interrupted: Ctrl-C; what was measured is its attribute `report`.
        UsageError: the folder cannot be used.
    """
    start = time.monotonic()
    with one_at_a_time():
        notes = settle_left_over(out, lambda text: watch(Progress(text, 0, 0.0, None)))
        report, folder = _diagnosis(target, limits, out, watch, echo, notes)
        report, limits = _beside_others(report, limits, watch)
        session = _Session(target, folder, limits, watch, report, start, propose)
        try:
            return session.tune()
        except KeyboardInterrupt:
            error: FlatoutError = Interrupted(
                "Interrupted.",
                f"{len(session.search.trials)} trials are kept.",
                f"The same command continues where this one stopped; everything is in {folder}.",
            )
            error.report = session.report()
            raise error from None


def _diagnosis(
    target: Target, limits: TuneLimits, out: Path | None, watch: Watch,
    echo: Callable[[bytes], None] | None, notes: list[str],
) -> tuple[Report, Path]:  # fmt: skip
    """Return the diagnosis and its folder: that of an unfinished tune of the same command, or a new one."""
    shown, asked = _told(target, limits)
    found = find_unfinished(out if out is not None else Path(".flatout"), shown, script_digest(target), asked)
    if found is not None:
        run, reason = taken_up(found)
        notes += [reason] if reason else []
        if run is not None:
            return conclude(run, found.absolute()), found.absolute()
    folder = run_folder(out, target.slug)

    def earlier(progress: Progress) -> None:
        watch(dataclasses.replace(progress, share=progress.share * _DIAGNOSIS / 2))

    given = Limits(budget_s=max(20.0, limits.budget_s * _DIAGNOSIS))
    try:
        report = diagnose_in(target, folder, limits=given, watch=earlier, echo=echo, notes=notes)
    except KeyboardInterrupt:
        meaning = "\n".join(["The diagnosis was not finished.", *notes, *read_notes(folder)])
        raise Interrupted("Interrupted.", meaning, f"It is in {folder}.") from None
    state = TuneState(
        command=shown.command,
        script=target.name,
        digest=script_digest(target),
        started=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        budget_s=limits.budget_s,
        asked=asked,
    )
    write_state(folder, state)
    return report, folder


def _beside_others(report: Report, limits: TuneLimits, watch: Watch) -> tuple[Report, TuneLimits]:
    """Say at once that the machine is busy, and give the trials more time: as many more as steps take longer.

    Trials compare steps in turns, which other programs slow down alike: their ratios hold, but take longer to come by.
    """
    busy, times = busy_in_words(report.run), min(limits.patience, slowdown(report.run))
    if not busy:
        return report, limits
    watch(Progress(f"a busy machine: {busy}", 0, _DIAGNOSIS / 2, None))
    more_s = limits.budget_s * times if times >= _WORTH_SAYING else limits.budget_s
    notes = list(report.run.notes)
    if more_s > limits.budget_s:
        notes.append(f"other programs ran: trials had {format_seconds(more_s)}, not {format_seconds(limits.budget_s)}")
    if Pace.of(report).sleeps:
        notes.append("other programs ran: in trials, with and without a fix, waiting threads slept (OMP_WAIT_POLICY)")
    run = dataclasses.replace(report.run, notes=tuple(notes))
    return dataclasses.replace(report, run=run), dataclasses.replace(limits, budget_s=more_s)


def _told(target: Target, limits: TuneLimits) -> tuple[Target, dict[str, object]]:
    """Return the command line as it is kept, without its secrets, and what else tells this tune from others."""
    asked: dict[str, object] = {"only": sorted(limits.only), "also": sorted(limits.also), "equal": limits.equal.value}
    if limits.edits:
        asked["edits"] = {edit.label: digest([str(edit.settings)], own_key()) for edit in limits.edits}
    shown = dataclasses.replace(target, command=masked_words(target.command))
    if shown.command != target.command:
        asked["secrets"] = digest(target.command, own_key())
    return shown, asked


class _Session:
    """One tune under way."""

    def __init__(
        self, target: Target, folder: Path, limits: TuneLimits, watch: Watch, report: Report, start: float,
        propose: Propose,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._limits = limits
        self._watch = watch
        self._report = report
        run, breakdown, findings = report.run, report.breakdown, report.findings
        edits = [*(ProposedEdit(selection=each) for each in limits.edits), *propose(report)]
        offered = candidates(
            run, breakdown, findings, only=limits.only, also=limits.also, equal=limits.equal, edits=edits
        )
        self._left = untried(run, breakdown, findings, offered, only=limits.only | limits.also, equal=limits.equal)
        self.search = Search(
            target,
            folder,
            report,
            offered,
            journal=TrialJournal(folder),
            until=start + limits.budget_s,
            watch=self._progress,
        )

    def tune(self) -> Report:
        """Make the trials that are left, then confirm."""
        self.search.run()
        state = read_state(self._folder)
        if state is not None:
            state = dataclasses.replace(
                state,
                finished=True,
                recipe=self.search.recipe,
                confirmation=self.search.confirmation,
                untried=(*self._left, *self.search.untried),
            )
            with contextlib.suppress(OSError):  # a full disk: the report is shown all the same
                write_state(self._folder, state)
        return self.report()

    def report(self) -> Report:
        """Return what is known so far."""
        search = self.search
        undecided = undecided_in_time(search.trials, self._limits.budget_s)
        notes = dict.fromkeys([*self._report.run.notes, *search.notes, *undecided, *read_notes(self._folder)])
        run = dataclasses.replace(self._report.run, notes=tuple(notes))
        return dataclasses.replace(
            self._report,
            run=run,
            trials=tuple(search.trials),
            untried=(*self._left, *search.untried),
            recipe=search.recipe,
            confirmation=search.confirmation,
        )

    def _progress(self, stage: str, steps: int, left_s: float) -> None:
        done = 1 - left_s / self._limits.budget_s if self._limits.budget_s else 1.0
        self._watch(Progress(stage, steps, max(_DIAGNOSIS / 2, min(0.99, done)), max(0.0, left_s)))


def undecided_in_time(trials: Sequence[Trial], budget_s: float) -> list[str]:
    """Return what to do where candidates stayed undecided: nothing, or one sentence with a larger budget."""
    open_ones = [trial for trial in trials if trial.verdict is Verdict.UNDECIDED and trial.equality is None]
    if not open_ones:
        return []
    pairs = [len(trial.comparison.pairs) if trial.comparison else 0 for trial in open_ones]
    counted = str(pairs[0]) if len(set(pairs)) == 1 else f"{min(pairs)} to {max(pairs)}"
    what = open_ones[0].candidate.selection.label if len(open_ones) == 1 else f"{len(open_ones)} candidates"
    minutes = max(1, math.ceil(_LONGER * budget_s / 60))
    return [
        f"{what} stayed undecided after {counted} pair{'s' if counted != '1' else ''}: neither faster nor ruled out; "
        f"more time gives more pairs: --budget {minutes}m"
    ]
