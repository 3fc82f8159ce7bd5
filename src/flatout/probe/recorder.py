"""The observation of one process: puts the probes together, decides when enough was seen, and stops the script."""

import contextlib
import dataclasses
import functools
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from flatout.probe.core.clock import DeviceClock
from flatout.probe.core.enough import LOOK_EVERY_NS, RecordedSpan
from flatout.probe.core.environment import describe_environment, describe_memory
from flatout.probe.core.event_log import EventLog
from flatout.probe.core.light_cost import cost_of_probes
from flatout.probe.core.part_file import PartFile
from flatout.probe.core.probe_failure import in_one_line
from flatout.probe.files.guarded_files import keep_files
from flatout.probe.light_probes import LightProbes
from flatout.probe.system.rank_barrier import RankBarrier
from flatout.probe.system.whole_file import WholePart
from flatout.schema.codec import dump_record
from flatout.schema.order import Order
from flatout.schema.run import End, Header, Outside, Step
from flatout.schema.secrets import masked_words

if TYPE_CHECKING:
    from flatout.probe.deep import DeepWatch

__all__ = ["Recorder", "StepReceiver", "StopRecording"]


_DEVICE_WITHIN = 50  # steps within which a script that uses CUDA has begun to


class StopRecording(BaseException):
    """Ends the script once enough steps were seen; no error, and no `Exception`, so that scripts let it pass."""


@dataclasses.dataclass(frozen=True)
class StepReceiver:
    """Who takes the steps of a timing or a verification.

    `step` says when it has enough; `finish` writes what it has.
    """

    step: Callable[[Step], bool]
    finish: Callable[[], object] | None = None


class DeviceTimes:
    """The device's time of every step, by a clock that begins when the script uses CUDA."""

    def __init__(self, event_log: EventLog, part: PartFile) -> None:
        """Take the log whose events the clock marks, and where times are written."""
        self._event_log = event_log
        self._part = part
        self._clock: DeviceClock | None = None

    def step_done(self, number: int) -> None:
        """Close a step, and write what the device has finished meanwhile."""
        if self._clock is not None:
            self._clock.step_done(number)
        elif number <= _DEVICE_WITHIN and torch.cuda.is_initialized():
            self._clock = self._event_log.events.device = DeviceClock(_timing_event, self._write)

    def _write(self, number: int, nanoseconds: tuple[int, ...]) -> None:
        self._part.put_line(dump_record("device", {"step": number - 1, "ns": list(nanoseconds)}))


class Recorder:
    """Everything that is attached to one process of the script."""

    def __init__(self, order: Order) -> None:
        """Put the probes together; nothing is installed yet."""
        self.order = order
        self.rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) or 0)
        exact = order.steps is not None or order.mode in ("timing", "verify")  # then look at the end of every step
        event_log = EventLog(self._step, self._outside, interval_ns=0 if exact else LOOK_EVERY_NS)
        event_log.tracker.trouble = self._trouble
        self.probes = LightProbes(event_log)
        self.deep = self._deep_watch() if order.mode == "deep" else None
        if self.deep is not None or torch.cuda.device_count():  # a sampler, a device clock ask at any moment
            event_log.at_once()
        self.receiver: StepReceiver | None = None
        self.done = ""
        self._leaving: RankBarrier | None = None
        self._finishing = False
        self.notes: list[str] = []
        parts = Path(order.folder) / "parts"
        self.part = (WholePart if order.mode == "whole" else PartFile)(
            parts / f"{order.mode}-rank{self.rank}-{os.getpid()}.jsonl"
        )
        self._span = RecordedSpan(order)
        self._device = DeviceTimes(event_log, self.part)

    def _deep_watch(self) -> "DeepWatch":
        from flatout.probe.deep import DeepWatch  # a training under a recipe needs none of it

        return DeepWatch(self)

    # -- life ---------------------------------------------------------------------------------------------------

    def attach(self, began_s: float | None = None) -> None:
        """Install the probes and begin to write; `began_s`: when attaching began, on the performance counter."""
        attaching_s = 0.0 if began_s is None else time.perf_counter() - began_s
        self.part.put("header", dataclasses.replace(self._header(), attaching_s=attaching_s))
        self._install()
        if self.order.protect_files:
            keep = keep_files(self.order.folder)
            self.probes.training.saves.before_save = functools.partial(keep.before_write, truncates=True)
        self.probes.training.on_exit = lambda: self.finish("script ended")
        forked = weakref.WeakMethod(self._forked)
        os.register_at_fork(after_in_child=lambda: (known := forked()) and known())
        self._hook_errors()
        self.part.begin()

    def attach_again(self) -> None:
        """Install the probes once more after `detach`: what a measurement of their cost needs."""
        self._install()
        self.probes.modules.rehook()

    def _install(self) -> None:
        """Install the probes; one that fails is noted and left out, training goes on."""
        sink = self.deep.watch("device-copies") if self.deep else None
        self._span.install(self.probes.seams, self.probes.event_log.thread)
        installers = self.probes.installers(sink, everywhere=self.order.all_devices)
        for install in (*installers, *([self.deep.install] if self.deep else [])):
            try:
                install(self.probes.seams)
            except Exception as error:
                self.notes.append(f"a probe was left out: {type(error).__name__}: {error}")

    def detach(self) -> None:
        """Take every probe away again: afterwards each attribute is the object it was before."""
        self.probes.remove()

    def let_go(self) -> None:
        """Take the probes away and forget the training: a process that lives on keeps nothing of it."""
        import atexit

        self.detach()
        self.probes.event_log.thread = -1  # what the script keeps of us, a function it compiled, passes everything on
        self.probes.training.forget()
        self.probes.losses.kept.clear()
        atexit.unregister(self._process_ends)

    def finish(self, reason: str, error: str = "") -> None:
        """Write everything that is known; called once, in the training thread where that is possible."""
        if self.done or self._finishing:
            return
        self._finishing = True
        if reason != "steps":  # else a step has ended this moment: nothing is half done
            with contextlib.suppress(Exception):
                self.probes.event_log.finish()
        at_ns = time.perf_counter_ns()
        self.done = reason
        if self.receiver is not None and self.receiver.finish is not None:
            with contextlib.suppress(Exception):
                self.receiver.finish()
        for describe in (self._facts, self._losses, self._causes):
            try:
                describe()
            except Exception as trouble:
                self.notes.append(f"a fact is missing: {type(trouble).__name__}: {trouble}")
        self.part.put_many("notes", self.notes)
        self.part.flush()
        self.part.put("end", End(reason=reason, error=error, at_ns=at_ns))
        self.part.close()

    def _trouble(self, error: Exception) -> None:
        """A probe failed: take all of them away, keep what was measured, let the training go on."""
        if not self.done:
            self.probes.event_log.thread = -1
            self.notes.append(f"the probes failed and were removed: {type(error).__name__}: {error}")
            self.detach()
            self.finish("probe failed")

    def _forked(self) -> None:
        """In a forked child nothing is recorded: it is another process's work."""
        self.probes.event_log.thread = -1
        self.done = "forked"

    def _hook_errors(self) -> None:
        import atexit

        before = sys.excepthook

        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            if issubclass(kind, StopRecording):
                return
            if not self.done:
                self.finish("script failed", in_one_line(error))
            before(kind, error, trace)

        self.probes.seams.replace(sys, "excepthook", excepthook)
        atexit.register(self._process_ends)

    def _process_ends(self) -> None:
        if self.done != "forked":
            self.finish("script ended")

    # -- steps --------------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        if self.done:
            if self._leaving is not None and self._leaving.may():
                raise StopRecording
            return
        tracker, receiver = self.probes.event_log.tracker, self.receiver
        number = self._number(step)
        if number < 1:
            return
        self.part.step(step)
        if self._finishing:
            return
        self._device.step_done(number)
        if not self._span.first_ns:
            self._span.begin(step)
            self.part.put("environment", describe_environment())
        if self.deep is not None:
            self.deep.step(step, number)
        if receiver.step(step) if receiver is not None else self._span.suffices(step, tracker):
            self.finish("steps")
            self.done = "stopped"
            self._leaving = RankBarrier(Path(self.order.folder) / "parts", f"complete-{self.order.mode}", self.rank)
            if self._leaving.may():
                raise StopRecording

    def _number(self, step: Step) -> int:
        """Return which of the steps that are asked for it is, from 1 on; less where it comes before them.

        In a timed run, note where another training has begun.
        """
        probes, tracker, order = self.probes, self.probes.event_log.tracker, self.order
        number = tracker.num_steps - order.first_step + 1
        optimizers = tracker.optimizers.of_step
        if order.mode == "timed":
            first = self._span.stage(step, tracker, probes.training.held_by(optimizers))
            if first:
                self.part.put_line(dump_record("stage", {"step": first}))
                probes.training.stays(optimizers)
        elif number == 1 < order.first_step:
            probes.training.stays(optimizers)
        optimizers.clear()
        return number

    def write(self, kind: str, body: Mapping[str, object]) -> None:
        """Write one record of a timing or a verification."""
        self.part.put_line(dump_record(kind, body))

    def _outside(self, stretch: Outside) -> None:
        if not self.done and (self._span.first_ns or self.order.first_step == 1):
            self.part.outside(stretch)

    # -- facts --------------------------------------------------------------------------------------------------

    def _header(self) -> Header:
        return Header(
            script=self.order.script,
            argv=masked_words(sys.argv),
            mode=self.order.mode,
            rank=self.rank,
            world_size=int(os.environ.get("WORLD_SIZE", "1") or 1),
            pid=os.getpid(),
            started_unix_s=self.order.launched_unix_s,
            launched_ns=time.perf_counter_ns() - round((time.time() - self.order.launched_unix_s) * 1e9),
            working_folder=os.getcwd(),
        )

    def _facts(self) -> None:
        self.part.put("environment", describe_environment())
        memory = describe_memory()
        if memory is not None:
            before = self._span.memory_before.retries if self._span.memory_before else 0
            self.part.put("device_memory", dataclasses.replace(memory, retries=memory.retries - before))
        probes, tracker = self.probes, self.probes.event_log.tracker
        self.part.put_many("loaders", probes.loading.describe(tracker.passes.trained))
        self.part.put_many("models", probes.modules.describe())
        self.part.put_many("optimizers", probes.training.describe())
        size, hits = probes.batch_size(), probes.seams.hits()
        spans = (sum(hits.values()) + 2 * tracker.num_steps) / max(1, tracker.num_steps)
        facts = {
            "batch_samples": None if size is None else float(size),
            "probe_us": cost_of_probes(spans),
            "seams": hits,
            "planned": dataclasses.asdict(self._span.planned),
        }
        self.part.put_line(dump_record("facts", facts))

    def _losses(self) -> None:
        self.part.put_many("losses", self.probes.losses.values())

    def _causes(self) -> None:
        if self.deep is not None:
            self.deep.finish()


_current: list[Recorder] = []
"""The recorder of this process, held here so that it lives as long as the process."""


def start(
    order: Order, prepare: Callable[[Recorder], None] | None = None, *, began_s: float | None = None
) -> Callable[[], None] | None:
    """Attach a recorder to this process; return what undoes it, or None when there is one already.

    `prepare` is called before the probes are installed, so that they lie around whatever it installs. `began_s`: when
    attaching began, on the performance counter.
    """
    if _current:
        return None
    recorder = Recorder(order)
    _current.append(recorder)
    if prepare is not None:
        prepare(recorder)
    recorder.attach(began_s)

    def leave() -> None:
        recorder.let_go()
        _current.remove(recorder)

    return leave


def _timing_event() -> Any:
    return torch.cuda.Event(enable_timing=True)
