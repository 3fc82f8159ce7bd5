"""`flatout diagnose --whole`: a training from its start to its end, as it is, under light probes.

Nothing is bounded, redirected or put back: the script keeps its streams, its files and its experiment trackers, as
under `flatout run`. What is recorded has a bounded size (`probe/system/whole_file.py`).
"""

import dataclasses
import os
import signal
import threading
import time
from pathlib import Path

from flatout.engine.diagnose import conclude
from flatout.engine.process.collect import collect_run
from flatout.engine.process.failure import explain_nothing, script_failure
from flatout.engine.process.launch import Outcome
from flatout.engine.process.masked_signals import block_signals
from flatout.engine.process.run_folder import run_folder
from flatout.engine.process.target import Target
from flatout.engine.process.utilization import UtilizationSampler
from flatout.engine.train import train_observed
from flatout.errors import Interrupted
from flatout.schema.codec import RUN_FILE, write_order, write_run
from flatout.schema.order import Order
from flatout.schema.report import Report

__all__ = ["record_whole"]

_PERIOD_S = 0.5
_BY_CTRL_C = 128 + signal.SIGINT


def record_whole(target: Target, out: Path | None) -> Report:
    """Run the whole training of `target` and return the report on it.

    Raises:
        NothingMeasured: it could not be started, or no training step was seen.
        ScriptFailed: the script ended with an error; the report on what it did before is an attribute.
        Interrupted: Ctrl-C; the same.
        UsageError: the folder cannot be used.
    """
    folder = run_folder(out, target.slug)
    path = folder / "order-whole.json"
    order = Order(
        mode="whole",
        folder=str(folder),
        script=target.name,
        max_s=float("inf"),
        launched_unix_s=time.time(),
        protect_files=False,
    )
    write_order(order, path)
    begin = time.monotonic()
    with _Sampling() as sampling:
        code = train_observed(target, path)
    outcome = Outcome(exit_code=code if code < 128 else 128 - code, wall_s=time.monotonic() - begin)
    run = collect_run(folder / "parts", "whole", sampling.sampler.samples())
    if run is None or not run.steps:
        raise Interrupted("Interrupted.") if code == _BY_CTRL_C else explain_nothing(target, folder, run, outcome)
    run = dataclasses.replace(run, end=dataclasses.replace(run.end, exit_code=outcome.exit_code))
    write_run(run, folder / RUN_FILE)
    report = conclude(run, folder)
    if code:
        error = Interrupted("Interrupted.") if code == _BY_CTRL_C else script_failure(target, folder, run, outcome)
        assert error is not None
        error.report = report
        raise error
    return report


class _Sampling:
    """A thread of ours that samples the machine while the training runs; signals are not for it."""

    def __init__(self) -> None:
        self.sampler = UtilizationSampler()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "_Sampling":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        block_signals()
        begin = time.monotonic()
        while not self._over.wait(_PERIOD_S):
            self.sampler.sample(os.getpid(), time.monotonic() - begin)
