"""Following a timed execution: ending one that hangs or has measured enough, and naming how one failed."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from flatout.engine.process.failure import shown_tail
from flatout.engine.process.launch import Outcome
from flatout.engine.trial.block_results import Failure, read_parts
from flatout.schema.trial import Verdict

__all__ = ["Ended", "Follower", "trial_failure"]

_OUT_OF_MEMORY = ("out of memory", "OutOfMemoryError", "can't allocate memory", "MemoryError", "Cannot allocate memory")
_DISK_FULL = ("No space left on device", "Disk quota exceeded")


class Ended(Exception):
    """The execution needs not go on: "stalled", nothing has come for too long, or "decided", enough was measured."""


class Follower:
    """Watches an execution's parts grow; ends it when they do not, or when enough was measured."""

    def __init__(
        self, folder: Path, watch: Callable[[int], None], decided: Callable[[], bool] | None, stall_s: float
    ) -> None:
        """Take the execution's folder, who follows, what tells that enough was measured, and the longest silence."""
        self._parts = folder / "parts"
        self._watch = watch
        self._decided = decided
        self._stall_s = stall_s
        self._size, self._grown_s = -1, 0.0
        self.elapsed_s = 0.0

    @property
    def quiet_s(self) -> float:
        """Seconds since the last record."""
        return self.elapsed_s - self._grown_s

    def __call__(self, steps: int, elapsed_s: float) -> None:
        """Look at what was written, now.

        Raises:
            Ended: it is to be ended.
        """
        self.elapsed_s = elapsed_s
        self._watch(steps)
        size = 0
        with contextlib.suppress(OSError):
            size = sum(path.stat().st_size for path in self._parts.iterdir())
        if size != self._size:
            self._size, self._grown_s = size, elapsed_s
            if self._decided is not None and self._decided():
                raise Ended("decided")
        elif self.quiet_s > self._stall_s * (1 if steps else 3):
            raise Ended("stalled")


def trial_failure(outcome: Outcome, folder: Path, silence_s: float) -> Failure | None:
    """Return how a timed execution failed, None when it only came to its end too early.

    One that was ended because its time was over hung if it had written nothing for `silence_s` seconds.
    """
    tail = shown_tail(folder / "output-timing.log")
    last = tail.strip().splitlines()[-1][:200] if tail.strip() else ""
    if outcome.stopped_by == "stalled" or (outcome.stopped_by == "budget" and outcome.quiet_s > silence_s):
        return Failure(Verdict.TIMED_OUT, f"no step for {outcome.quiet_s:.0f} s; it was stopped")
    if outcome.stopped_by == "budget":
        return None
    if any(sign in tail for sign in _DISK_FULL) or outcome.launch_error:
        return Failure(Verdict.CRASHED, f"the disk was full: {outcome.launch_error or last}")
    if outcome.exit_code in (-9, 137) or any(sign in tail for sign in _OUT_OF_MEMORY):
        return Failure(Verdict.OUT_OF_MEMORY, last or "it was killed, as the system does when memory runs out")
    if outcome.exit_code and not _ended_early(folder):
        how = f"exit code {outcome.exit_code}" if outcome.exit_code > 0 else f"signal {-outcome.exit_code}"
        return Failure(Verdict.CRASHED, f"{how}: {last}" if last else how)
    return None


def _ended_early(folder: Path) -> bool:
    """Return whether one training came to its end and the other, which was told so, ended itself: with code 1."""
    ends = [
        next((r["value"] for r in reversed(records) if r.get("kind") == "end"), None) for records in read_parts(folder)
    ]
    reasons = {end["reason"] if end is not None else "" for end in ends}
    return "steps" in reasons and reasons <= {"steps", "script ended"}
