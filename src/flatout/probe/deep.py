"""The deep run: lines, fetch times, repeated samples, retained graphs, the price of anomaly detection. Never timed."""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from flatout.probe.collector import CollectorWatch
from flatout.probe.compiling import compiled_functions, graph_breaks
from flatout.probe.datasets import look_at_samples
from flatout.probe.fetching import FetchStats, FetchWatch, dataset_key
from flatout.probe.frameworks import driving_framework
from flatout.probe.lines import LineSampler, where
from flatout.probe.places import caller
from flatout.probe.retention import RetentionWatch
from flatout.probe.seams import Hits, Seams
from flatout.probe.spans import BACKWARD, FORWARD
from flatout.probe.trouble import guarded
from flatout.probe.workers import watch_workers
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.plain import to_plain
from flatout.schema.run import Causes, Frame, ModelFacts, Retained, Step, SyncPoint, Transfer

if TYPE_CHECKING:
    from flatout.probe.recorder import Recorder

__all__ = ["DeepWatch"]

_ANOMALY_BLOCK = 5  # steps with anomaly detection on, then as many with it off


class DeepWatch:
    """Finds causes in one short execution of the script."""

    def __init__(self, recorder: "Recorder") -> None:
        """Take the recorder whose account says what phase is running."""
        self._recorder = recorder
        self._tape = recorder.tape
        self.trouble: Callable[[Exception], None] = lambda error: recorder.tape.tracker.trouble(error)
        self._fetching = FetchWatch()
        self._retention = RetentionWatch()
        self._collector = CollectorWatch(self._in_step)
        self._sampler = LineSampler("main", lambda: self._tape.thread, self._where)
        self._sampler.stage_of = lambda: self._fetching.stage
        self._waits: dict[tuple[str, Frame | None], list[int]] = {}
        self._copies: dict[tuple[Frame | None, str, bool, bool], list[int]] = {}
        self._phases_ns = [0] * len(STEP_PHASES)
        self._retained: tuple[Retained, ...] = ()
        self._anomaly = _AnomalyPrice()
        self._num_steps = 0
        self._framework = ""
        self._since_unix_s = 0.0
        self._start_ns = perf_counter_ns()

    def install(self, seams: Seams) -> None:
        """Start sampling the training thread, and every worker."""
        folder = Path(self._recorder.order.folder) / "parts"
        self._fetching.install(seams)
        watch_workers(seams, folder)
        self._anomaly.install(seams)
        self._recorder.training.on_backward = self._before_backward
        self._recorder.modules.on_forward = self._anomaly.apply

    @guarded
    def step(self, step: Step, number: int) -> None:
        """Take one finished step; sampling begins with the second."""
        if number == 1:
            self._since_unix_s = time.time()
            self._framework = driving_framework(sys._getframe(1))
            self._tape.thread = get_ident()
            self._sampler.start()
            self._collector.start()
            return
        self._num_steps += 1
        for index, nanoseconds in enumerate(step.phases_ns):
            self._phases_ns[index] += nanoseconds
        self._anomaly.step(step, with_host=not self._recorder.modules.modules())
        self._retention.glance(sys._getframe(1))

    def _in_step(self) -> bool:
        tracker = self._recorder.tape.tracker
        return not (tracker.in_validation or tracker.between_epochs)

    def _where(self) -> tuple[str, str]:
        tracker = self._recorder.tape.tracker
        slot = self._tape.account.current
        if tracker.in_validation:
            return Phase.VALIDATION, ""
        return where(slot, tracker.between_epochs)

    @guarded
    def _before_backward(self, tensor: Any) -> None:
        self._retention.mark(tensor)
        self._anomaly.apply()

    # -- copies and waits (CopySink) ----------------------------------------------------------------------------

    def copied(self, source: Any, result: Any, nanoseconds: int, blocking: bool) -> None:
        """Take one copy from host to device."""
        key = (caller(3), str(source.dtype).removeprefix("torch."), bool(source.is_pinned()), blocking)
        cost = self._copies.setdefault(key, [0, 0, 0])
        cost[0] += 1
        cost[1] += source.nbytes
        cost[2] += nanoseconds

    def waited(self, operation: str, nanoseconds: int) -> None:
        """Take one wait of the host for the device."""
        cost = self._waits.setdefault((operation, caller(3)), [0, 0])
        cost[0] += 1
        cost[1] += nanoseconds

    # -- the end ------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write what was found."""
        self._sampler.stop()
        self._collector.stop()
        self._anomaly.end()
        part = self._recorder.part
        self._retained = self._retention.find(sys._getframe(1))
        loaders = self._recorder.loading.loaders
        training = self._recorder.tape.tracker.trained_passes
        looked = 0
        for watched in loaders:
            loader = watched.ref()
            if loader is None or not watched.passes:
                continue
            watched.extra = _fetch_fields(self._fetching.stats.get(dataset_key(loader.dataset)))
            if watched.passes & training and looked < 2:
                looked += 1
                watched.extra["prefix"] = look_at_samples(loader.dataset)
        part.put_many("loaders", self._recorder.loading.describe(training))
        self._recorder.modules.anomaly = self._anomaly.facts()
        models = self._recorder.modules.describe()
        share, steps, place = self._recorder.modules.anomaly
        if not models and steps:  # a training without modules has nothing else to hang it on
            models = (ModelFacts(anomaly_share=share, anomaly_steps=steps, anomaly_at=place),)
        part.put_many("models", models)
        part.put("causes", self._causes())

    def _causes(self) -> Causes:
        return Causes(
            lines=self._sampler.costs(),
            num_steps=self._num_steps,
            wall_s=self._sampler.wall_s,
            phases_s={phase.value: ns / 1e9 for phase, ns in zip(STEP_PHASES, self._phases_ns, strict=True)},
            syncs=tuple(
                SyncPoint(operation=operation, place=place, count=count, seconds=ns / 1e9)
                for (operation, place), (count, ns) in self._waits.items()
            ),
            transfers=tuple(
                Transfer(
                    direction="to_device",
                    place=place,
                    count=count,
                    num_bytes=num_bytes,
                    seconds=ns / 1e9,
                    dtype=dtype,
                    pinned=pinned,
                    blocking=blocking,
                )
                for (place, dtype, pinned, blocking), (count, num_bytes, ns) in self._copies.items()
            ),
            retained=self._retained,
            collector=self._collector.facts(),
            breaks=graph_breaks(),
            compiled=compiled_functions(self._since_unix_s),
            framework=self._framework,
        )


def _fetch_fields(stats: FetchStats | None) -> dict[str, Any]:
    if stats is None or not stats.fetches:
        return {}
    return fetch_fields(to_plain(stats))


def fetch_fields(stats: Any) -> dict[str, Any]:
    """Return the fields of LoaderFacts that fetch totals (as plain data) give: seconds a batch."""
    count = max(1, stats["fetches"])
    return {
        "fetches": stats["fetches"],
        "sample_s": (stats["total_ns"] - stats["collate_ns"]) / count / 1e9,
        "sample_cpu_s": stats["sample_cpu_ns"] / count / 1e9,
        "collate_s": stats["collate_ns"] / count / 1e9,
        "sampler_s": stats["sampler_ns"] / max(1, stats["sampled"]) / 1e9,
    }


def _torch_asks(frame: FrameType) -> bool:
    """Return whether a call comes from torch itself: its compiler traces with anomaly detection on."""
    return str(frame.f_globals.get("__name__", "")).startswith("torch.")


class _AnomalyPrice:
    """Switches anomaly detection off for every other block of steps and compares forward + backward."""

    def __init__(self) -> None:
        self._arms: tuple[list[int], list[int]] = ([], [])
        self._place: Frame | None = None
        self._enabled_by_script = False
        self._steps = 0
        self._off = False

    def install(self, seams: Seams) -> None:
        for name in ("set_detect_anomaly", "detect_anomaly"):
            seams.wrap(f"torch.autograd.anomaly_mode:{name}.__init__", self._noted)
        seams.wrap("torch.autograd.anomaly_mode:detect_anomaly.__enter__", self._entered)

    def _entered(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def enter(context: Any) -> Any:
            result = original(context)
            if not _torch_asks(sys._getframe(1)):
                self.apply()
            return result

        return enter

    def _noted(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def init(*args: Any, **kwargs: Any) -> None:
            hits.count += 1
            if not _torch_asks(sys._getframe(1)):
                self._place = self._place or caller(2)
            original(*args, **kwargs)

        return init

    def apply(self) -> None:
        """Called as forward and backward begin: the script may have switched it on again inside the step."""
        if torch.is_anomaly_enabled():
            self._enabled_by_script = True
            if self._off:
                torch.set_anomaly_enabled(False, torch.is_anomaly_check_nan_enabled())

    def step(self, step: Step, *, with_host: bool) -> None:
        if not (self._enabled_by_script or torch.is_anomaly_enabled()):
            return
        spent = step.phases_ns[FORWARD] + step.phases_ns[BACKWARD]
        if with_host:  # no module is called: the forward pass is the loop's own code
            spent += step.phases_ns[STEP_PHASES.index(Phase.HOST)]
        # a step without a loader is told while the next one runs: the first two of a block may be of either arm
        if self._steps % _ANOMALY_BLOCK >= 2:
            self._arms[self._off].append(spent)
        self._steps += 1
        self._off = self._steps // _ANOMALY_BLOCK % 2 == 1
        torch.set_anomaly_enabled(not self._off, torch.is_anomaly_check_nan_enabled())

    def end(self) -> None:
        if self._enabled_by_script:
            torch.set_anomaly_enabled(True, torch.is_anomaly_check_nan_enabled())

    def facts(self) -> tuple[float, int, Frame | None]:
        """Return the share of forward + backward it costs, steps in the smaller arm, and where it was switched on."""
        on, off = self._arms
        steps = min(len(on), len(off))
        if steps < 3:
            return 0.0, 0, None
        return max(0.0, 1 - statistics.median(off) / statistics.median(on)), steps, self._place
