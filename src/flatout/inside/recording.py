"""A stretch of a program's own training, recorded where it runs: no second process, no line sampler, light probes only.

What it cannot give is what needs a process of its own: causes by line, repeated samples, the machine's utilization.
For these there is `flatout diagnose`.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flatout.engine.diagnose import conclude
from flatout.engine.process.collect import collect_run
from flatout.engine.process.run_folder import run_folder
from flatout.errors import NothingMeasured
from flatout.schema.codec import RUN_FILE, write_order, write_run
from flatout.schema.order import Order
from flatout.schema.report import Report
from flatout.schema.run import Run

__all__ = ["Recording", "recording"]

_WIDTH = 80


class Recording:
    """What was recorded inside a `with flatout.recording()` block; complete once the block has ended."""

    def __init__(self, folder: Path) -> None:
        """Take the folder that the recording is written to."""
        self.folder = folder
        self._report: Report | None = None
        self._trouble = ""

    @property
    def run(self) -> Run:
        """The Run: steps with their phases, loaders, models, optimizers, losses.

        Raises:
            NothingMeasured: the block has not ended, or no training step was seen in it.
        """
        return self.concluded.run

    @property
    def concluded(self) -> Report:
        """The Report: the Run with its time account and its findings.

        Raises:
            NothingMeasured: the block has not ended, or no training step was seen in it.
        """
        if self._report is None:
            raise NothingMeasured(
                "No training step was recorded.",
                "A step ends with the step of an optimizer, inside the `with` block.",
                "Ask for it after the block, and let the training run inside it.",
            )
        return self._report

    def report(self, *, width: int = _WIDTH) -> str:
        """Return the time account and the findings as text, `width` characters wide, as `flatout report` shows them.

        A sentence where there is nothing to report: a training is never stopped by its report.
        """
        from flatout.report.layout import Look
        from flatout.report.text import text

        if self._report is None:
            return f"flatout: {self._why_not()}"
        return text(self._report, Look(width=width)).plain

    def __repr__(self) -> str:
        """Return the number of steps and where they lie."""
        steps = f"{self._report.run.num_steps} steps" if self._report is not None else "nothing recorded yet"
        return f"<flatout.Recording: {steps}, {self.folder}>"

    def _why_not(self) -> str:
        return self._trouble or "no training step was recorded; read the report after the block that trains."

    def _conclude(self) -> None:
        run = collect_run(self.folder / "parts", "whole")
        if run is None or not run.steps:
            return
        with contextlib.suppress(OSError):  # a full disk: the parts are there, and the report can be shown
            write_run(run, self.folder / RUN_FILE)
        self._report = conclude(run, self.folder)


@contextlib.contextmanager
def recording(folder: str | Path | None = None) -> Iterator[Recording]:
    """Record the training that runs inside a `with` block, with light probes; results are the same as without.

        with flatout.recording() as run:
            train()
        print(run.report())

    The recording goes to `folder`/recording/TIME (by default below `.flatout`); `flatout report` shows it again. Where
    flatout observes this process already, or another block is open, nothing more is recorded and the training runs.

    Raises:
        UsageError: the folder cannot be made.
    """
    from flatout.probe.recorder import start

    found = Recording(run_folder(Path(folder) if folder is not None else None, "recording"))
    order = _order(found.folder)
    write_order(order, found.folder / "order-whole.json")  # `flatout report` reads what a killed program has left
    recorders: list[Any] = []
    leave = start(order, recorders.append)
    if leave is None:
        found._trouble = "this process is observed already, from outside or by another block; nothing was recorded."
    reason, error = "script ended", ""
    try:
        yield found
    except BaseException as failure:
        reason, error = "script failed", f"{type(failure).__name__}: {failure}"
        raise
    finally:
        if leave is not None:
            try:
                try:
                    recorders[0].finish(reason, error)
                finally:
                    leave()
                found._conclude()
            except Exception as trouble:  # what was trained counts for more than what was measured
                found._trouble = f"the recording could not be read: {type(trouble).__name__}: {trouble}"


def _order(folder: Path) -> Order:
    return Order(
        mode="whole",
        folder=str(folder),
        script="recording",
        launched_unix_s=time.time(),
        max_s=float("inf"),
        protect_files=False,
    )
