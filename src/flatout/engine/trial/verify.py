"""Whether results stay equal under fixes: the untouched script and the changed one, run from the same seeds.

The untouched script runs twice, so that its own spread is known, and where it gives the same bits a third time with
none of its modules watched: what flatout itself changed would be in all other executions. Further ones (weights
nudged, captured steps in float64) are made when a class needs them. All of these are made once for all candidates; a
candidate costs one execution.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flatout.analysis.epochs import ShortEpochs
from flatout.analysis.equality import changed_by_watching, deterministic, judge
from flatout.analysis.traces import Trace, read_trace
from flatout.engine.process.failure import shown_tail
from flatout.engine.process.launch import Execution, Outcome
from flatout.engine.process.target import Target
from flatout.engine.trial.block_results import read_parts
from flatout.fixes.core.catalog import find_fix
from flatout.fixes.source.source_edit import edited_files
from flatout.loader_account import LoaderAccount
from flatout.schema.codec import write_order
from flatout.schema.order import Order, VerifyOrder
from flatout.schema.trial import Check, Equality, Equivalence, Selection

__all__ = ["Verifier"]

_STEPS = 64  # that are compared, at least, where the window is long enough
_SPARE_S = 60.0  # that any execution may take besides: compilation, a busy machine
_WINDOW_S = 20.0  # of steps that are compared
_SLOWER = 4.0  # times the baseline's time, that other executions may take: replays, compilation
_NUDGES = {Equivalence.BITWISE: None, Equivalence.ROUNDING: 0.0, Equivalence.PRECISION: 2.0**-8}
_AS_THEY_ARE = ShortEpochs()


class Verifier:
    """Compares candidates of one script with the untouched script."""

    def __init__(
        self,
        target: Target,
        folder: Path,
        seed: int = 0,
        watch: Callable[[int], None] = lambda steps: None,
        epochs: ShortEpochs = _AS_THEY_ARE,
        other: Target | None = None,
    ) -> None:
        """Take the script and the folder of the tune; `watch(steps)` follows every execution.

        `epochs`: where passes over the data end early, so that what happens between two of them is compared, too.
        `other` is what a candidate runs, where that is another command.
        """
        self._targets = target, other or target
        self._folder = folder / "trials"
        self._seed = seed
        self._watch = watch
        self._epochs = epochs
        self._captures: dict[str, str] = {}  # folders of captured steps, by the role that made them
        self._traces: dict[str, dict[int, Trace]] = {}  # by what was run, then by rank
        self._took_s = 0.0
        self.window_s = _WINDOW_S
        self.outcome = Outcome()  # of the latest execution
        self.fixes: tuple[Mapping[str, Any], ...] = ()  # what those of the latest candidate did: "hits", "failure"

    @property
    def accounts(self) -> list[LoaderAccount]:
        """What became of each loader under the fix that the latest candidate added."""
        return [LoaderAccount(**told) for told in self.fixes[-1].get("loaders", ())] if self.fixes else []

    def prepare(self, budget_s: float) -> None:
        """Run the untouched script twice; `budget_s` bounds the two together."""
        if "baseline" in self._traces:
            return
        self.window_s = max(2.0, min(self.window_s, budget_s / 4))
        start = time.monotonic()
        baseline = self._run("baseline")
        if self._epochs.batches and _ended_too_early(baseline):
            self._epochs, start = _AS_THEY_ARE, time.monotonic()
            baseline = self._run("baseline")
        self._traces["baseline"] = baseline
        self._took_s = time.monotonic() - start
        self._traces["again"] = self._run("again", replay=False)

    def check(self, selections: Sequence[Selection], claimed: Equivalence) -> Equality:
        """Return whether the script's results under `selections` are as equal as `claimed` promises."""
        if claimed is Equivalence.SEMANTIC:
            return self._another_training(selections)
        if claimed.rank > Equivalence.PRECISION.rank:
            reason = f"what {claimed} changes cannot be distinguished from equal results by comparing single runs"
            return Equality(claimed=claimed, equal=None, reason=reason)
        self.prepare(4 * self.window_s)
        baseline, again = self._traces["baseline"], self._traces["again"]
        if not baseline or not again:
            return Equality(claimed=claimed, equal=None, reason=f"the untouched script made no step: {self._ended()}")
        same = all(deterministic(trace, again[rank]) for rank, trace in baseline.items() if rank in again)
        changed = self._changed_by_watching() if same else ""
        if changed:
            return Equality(claimed=claimed, equal=False, deterministic=True, reason=changed)
        bitwise = claimed is Equivalence.BITWISE and same
        nudged = {} if bitwise else self._nudged(claimed)
        references = {} if claimed is Equivalence.BITWISE else self._once("reference")
        found = self._run("candidate", selections, replay=not bitwise)
        if not found:
            return Equality(claimed=claimed, equal=None, reason=f"the script made no step: {self._ended()}")
        self.fixes = next(iter(found.values())).fixes
        bare = self._traces.get("bare", {})
        verdicts = [
            judge(claimed, trace, again[rank], nudged.get(rank), references.get(rank), found[rank], bare.get(rank))
            for rank, trace in baseline.items()
            if rank in again and rank in found
        ]
        worst = min(verdicts, key=lambda each: (each.equal is not False, each.equal is not None))
        last: Mapping[str, Any] = self.fixes[-1] if self.fixes else {"hits": {}, "failure": ""}
        if worst.equal and selections and not last["hits"]:
            reason = last["failure"] or f"it did nothing in {worst.num_steps} steps"
            return replace(worst, equal=None, reason=f"{selections[-1].label}: {reason}")
        return worst

    def _another_training(self, selections: Sequence[Selection]) -> Equality:
        """Return what can be said where results are meant to differ: `equal` is False when a loss is no number."""
        self.fixes = ()
        found = self._run("candidate", selections, replay=False)
        intervals = [each for trace in found.values() for each in trace.intervals]
        wrong = next((each.step for each in intervals if not each.finite), None)
        checks: tuple[Check, ...] = (Check(name="losses are numbers", passed=wrong is None, step=wrong),)
        reason = "results were not compared: it is another training" if wrong is None else "a loss is not a number"
        if not intervals:
            reason, checks = f"the script made no step: {self._ended()}", ()
        equal = None if wrong is None else False
        return Equality(
            claimed=Equivalence.SEMANTIC, equal=equal, reason=reason, checks=checks, num_steps=len(intervals)
        )

    def close(self) -> None:
        """Remove the captured states: they are as large as the model and its optimizer, several times."""
        for path in self._folder.glob("verify-*/captures/*.pt"):
            with contextlib.suppress(OSError):
                path.unlink()

    def _changed_by_watching(self) -> str:
        """Return what differs when no module is watched, "" where nothing does."""
        if "bare" not in self._traces:
            self._traces["bare"] = self._run("bare", replay=False)
        bare = self._traces["bare"]
        found = (changed_by_watching(one, bare[rank]) for rank, one in self._traces["baseline"].items() if rank in bare)
        return next(filter(None, found), "")

    # -- executions ---------------------------------------------------------------------------------------------

    def _nudged(self, claimed: Equivalence) -> dict[int, Trace]:
        """Return the script with weights moved a little; for BITWISE untouched, but replayed: its own spread."""
        share = _NUDGES[claimed]
        if share is None:
            return self._once("again", "spread")
        return self._once("nudged", f"nudged {share}", nudge=share)

    def _once(self, role: str, name: str = "", nudge: float = 0.0) -> dict[int, Trace]:
        name = name or role
        if name not in self._traces:
            self._traces[name] = self._run(role, nudge=nudge)
        return self._traces[name]

    def _run(
        self, role: str, fixes: Sequence[Selection] = (), *, replay: bool = True, nudge: float = 0.0
    ) -> dict[int, Trace]:
        """Run the script in one role and return what each rank wrote."""
        folder = self._next(role)
        target = self._targets[role == "candidate"]
        baseline = self._traces.get("baseline", {})
        steps = max((len(trace.intervals) for trace in baseline.values()), default=_STEPS + self._epochs.before)
        if role in ("baseline", "reference"):
            self._captures[role] = str(folder / "captures")
        order = Order(
            mode="verify",
            folder=str(folder),
            script=target.name,
            launched_unix_s=time.time(),
            fixes=tuple(fixes),
            edited=edited_files(fixes, target.folders).files,
            verify=VerifyOrder(
                role=role,
                captures=self._captures.get("baseline", ""),
                references=self._captures.get("reference", ""),
                steps=steps,
                pass_batches=self._epochs.batches,
                first_whole=self._epochs.first_whole,
                max_s=self.window_s * (1 if role == "baseline" else _SLOWER),
                replay=replay,
                nudge=nudge,
                seed=self._seed,
            ),
        )
        write_order(order, folder / "order.json")
        environment = {"PYTHONHASHSEED": "0"}
        for selection in fixes:
            fix = find_fix(selection.fix)
            environment |= dict(fix.environment) if fix is not None else {}
        execution = Execution(target, folder, folder / "order.json", "verify", environment)
        budget_s = _SPARE_S + _SLOWER * (self._took_s or 2 * self.window_s)
        self.outcome = execution.run(budget_s, lambda steps, elapsed_s: self._watch(steps))
        self._log = execution.log
        return _read(role, folder)

    def _next(self, role: str) -> Path:
        number = sum(1 for _ in self._folder.glob("*")) + 1 if self._folder.is_dir() else 1
        folder = self._folder / f"verify-{number:04d}-{role}"
        (folder / "parts").mkdir(parents=True)
        return folder

    def _ended(self) -> str:
        tail = shown_tail(self._log).strip().splitlines()
        if self.outcome.stopped_by == "budget":
            return f"it was stopped after {self.outcome.wall_s:.0f} s"
        return tail[-1][:200] if tail else f"exit code {self.outcome.exit_code}"


def _ended_too_early(baseline: Mapping[int, Trace]) -> bool:
    """Return whether the training did not go on as it does by itself: it failed, or came to its end."""
    ended = ("script ended", "script failed")
    return any(trace.reason in ended and len(trace.intervals) < _STEPS for trace in baseline.values())


def _read(role: str, folder: Path) -> dict[int, Trace]:
    """Return the traces of an execution by rank: of each the one with the most steps."""
    found: dict[int, Trace] = {}
    for records in read_parts(folder):
        rank = next((record["value"]["rank"] for record in records if record["kind"] == "header"), 0)
        with contextlib.suppress(KeyError, TypeError, ValueError):
            trace = read_trace(role, records)
            if (trace.intervals or trace.troubles) and len(trace.intervals) >= len(found.get(rank, trace).intervals):
                found[rank] = trace
    return found
