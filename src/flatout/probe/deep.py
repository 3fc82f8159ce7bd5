"""The deep run: lines, fetch times, repeated samples, retained graphs, the price of anomaly detection. Never timed."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.seams import Seams
from flatout.probe.loader.fetching import FetchStats, FetchWatch, dataset_key
from flatout.probe.loader.repeated_samples import look_at_samples, random_states_kept
from flatout.probe.loader.transform_stages import look_at_stages
from flatout.probe.loader.workers import watch_workers
from flatout.probe.model.anomaly_detection import AnomalyTrial
from flatout.probe.model.compilations import compiled_functions, graph_breaks
from flatout.probe.model.convolutions import ConvolutionWatch
from flatout.probe.model.graph_recording import GraphWatch
from flatout.probe.model.loop_invariant import LoopInvariantWatch
from flatout.probe.model.operations import ArithmeticWatch
from flatout.probe.model.padding import PaddingWatch
from flatout.probe.model.precision import PrecisionWatch
from flatout.probe.model.repeated_forward import RepeatWatch
from flatout.probe.model.retained_graphs import RetentionWatch
from flatout.probe.model.slow_reductions import ReductionWatch
from flatout.probe.model.training_framework import driving_framework
from flatout.probe.model.uncompiled import UncompiledWatch
from flatout.probe.model.unused_gradients import LOOKED, GradientWatch
from flatout.probe.system.cpu_fallback import FallbackWatch
from flatout.probe.system.device_copies import CopyWatch
from flatout.probe.system.device_trace import DeviceTrace, device_work, drawn
from flatout.probe.system.garbage_collector import CollectorWatch
from flatout.probe.system.gradient_exchange import ExchangeWatch
from flatout.probe.system.line_sampler import Doing, LineSampler, where
from flatout.probe.system.setting_trial import SettingTrialWatch
from flatout.probe.system.timeline import DRAWN_FROM, READING, STEPS, Timeline, fetched
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.plain import to_plain
from flatout.schema.run import Causes, ModelFacts, RemoteReads, Retained, Step

if TYPE_CHECKING:
    from flatout.probe.recorder import Recorder

__all__ = ["DeepWatch"]

_SLOW_NS = 100_000_000  # so long a step, and a deep run may end before the steps that are drawn best


class DeepWatch:
    """Finds causes in one short execution of the script."""

    def __init__(self, recorder: "Recorder") -> None:
        """Take the recorder whose account says what phase is running."""
        self._recorder = recorder
        self._tape = recorder.tape
        self.trouble: Callable[[Exception], None] = lambda error: recorder.tape.tracker.trouble(error)
        self._doing = Doing()
        self._fetching = FetchWatch(self._doing)
        self._retention = RetentionWatch()
        self._collector = CollectorWatch(self._in_step, lambda: self._doing.where[0] == Phase.EPOCH_GAP)
        self._sampler = LineSampler("main", self._doing)
        self.copies = CopyWatch(self._in_step, lambda error: self.trouble(error))
        self.copies.counting = False
        self._phases_ns = [0] * len(STEP_PHASES)
        self._retained: tuple[Retained, ...] = ()
        self._anomaly = AnomalyTrial()
        self._padding = PaddingWatch(self._tape)
        self._arithmetic = ArithmeticWatch(self._tape)
        self._convolutions = ConvolutionWatch(self._tape)
        self._precision, self._graphs = PrecisionWatch(self._tape), GraphWatch(self._tape)
        self._uncompiled = UncompiledWatch()
        self._exchange = ExchangeWatch(lambda error: self.trouble(error), recorder.training.optimizers)
        self._gradients = GradientWatch(lambda error: self.trouble(error), recorder.training.optimizers)
        self._fallbacks = FallbackWatch(lambda error: self.trouble(error))
        self._prices = SettingTrialWatch(recorder.training.optimizers, lambda: recorder.loading.loaders)
        self._timeline = Timeline(lambda: self._doing.where[0])
        self._device = DeviceTrace()
        self._repeats = RepeatWatch(self._in_step)
        self._unchanging, self._reductions = LoopInvariantWatch(self._tape), ReductionWatch(self._tape)
        self._num_steps = 0
        self._framework = ""
        self._since_unix_s = 0.0
        self._between_ns = self._changed_at = 0
        self._start_ns = perf_counter_ns()

    def install(self, seams: Seams) -> None:
        """Start sampling the training thread, and every worker."""
        folder = Path(self._recorder.order.folder) / "parts"
        self._fetching.install(seams)
        watch_workers(seams, folder)
        self._anomaly.install(seams)
        self._padding.install(seams)
        self._convolutions.install(seams)
        self._prices.install(seams)
        self._device.install(seams)
        self._fallbacks.install(seams)
        self._gradients.install(seams)
        self._collector.install(seams)
        self._tape.on_change = self._changed
        self._recorder.training.on_backward = self._before_backward
        self._recorder.modules.on_forward = self._anomaly.apply
        self._recorder.modules.on_call = self._called
        self._recorder.modules.around += [
            each.around
            for each in (self._arithmetic, self._unchanging, self._reductions, self._precision, self._uncompiled)
        ]
        self._recorder.modules.around_always += [self._repeats.around, self._graphs.around]

    @guarded
    def step(self, step: Step, number: int) -> None:
        """Take one finished step; sampling begins with the second."""
        if number == 1:
            self._since_unix_s = time.time()
            self.copies.counting = True
            self._framework = driving_framework(sys._getframe(1))
            self._tape.thread = get_ident()
            self._sampler.start()
            self._collector.start()
            return
        self._num_steps += 1
        self.copies.step()
        self._repeats.step()
        self._unchanging.step()
        self._reductions.step()
        for index, nanoseconds in enumerate(step.phases_ns):
            self._phases_ns[index] += nanoseconds
        self._anomaly.step(step, with_host=not self._recorder.modules.modules())
        self._exchange.step(step, number, aside=self._prices.other)
        self._gradients.step(step, number)
        self._convolutions.step(step, number)
        if not self._anomaly.priced:
            self._prices.step(step, number)
            self._try_frozen(number)
        if self._prices.switching or self._anomaly.priced:
            self._timeline.end(step.start_ns + step.wall_ns)
        self._timeline.step(step, number)
        self._follow_device(step, number)
        self._retention.glance(sys._getframe(1))

    def _try_frozen(self, number: int) -> None:
        """Price gradients that nobody reads; a compiled model would be compiled anew without them."""
        if number == LOOKED and not self._tape.tracing.possible and (freeze := self._gradients.freezing()) is not None:
            self._prices.offer("gradients", freeze)

    def _follow_device(self, step: Step, number: int) -> None:
        """Record what the device does in the steps that are drawn, and little more."""
        if self._timeline.ended:
            self._device.stop()
        elif number >= DRAWN_FROM or step.wall_ns > _SLOW_NS:
            self._device.start()

    def _in_step(self) -> bool:
        tracker = self._recorder.tape.tracker
        return not (tracker.in_validation or tracker.between_epochs)

    def _where(self) -> tuple[str, str]:
        tracker = self._recorder.tape.tracker
        slot = self._tape.account.current
        if tracker.in_validation:
            return Phase.VALIDATION, ""
        return where(slot, tracker.between_epochs)

    def _changed(self, moment: int) -> None:
        if self._doing.where[0] == Phase.EPOCH_GAP:
            self._between_ns += moment - self._changed_at
        self._changed_at = moment
        self._doing.where = self._where()
        self._timeline.changed(moment)

    def _called(self, module: Any, arguments: Any) -> None:
        self._padding.called(module, arguments)
        self._exchange.called(module, arguments)
        self._gradients.called(module, arguments)

    @guarded
    def _before_backward(self, tensor: Any) -> None:
        self._retention.mark(tensor)
        self._exchange.backward()
        self._graphs.backward()
        self._gradients.backward(tensor)
        self._anomaly.apply()

    # -- the end ------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write what was found."""
        self._sampler.stop()
        self._collector.stop()
        self._anomaly.end()
        self._prices.end()
        self._device.stop()
        part = self._recorder.part
        self._retained = self._retention.find(sys._getframe(1))
        loaders = self._recorder.loading.loaders
        training = self._recorder.tape.tracker.trained_passes
        looked: dict[int, dict[str, Any]] = {}  # loaders made anew for each epoch share their dataset
        for watched in loaders:
            loader = watched.ref()
            dataset = loader.dataset if loader is not None else watched.dataset()
            if dataset is None or not watched.passes:
                continue
            watched.extra = _fetch_fields(self._fetching.stats.get(dataset_key(dataset)))
            if watched.passes & training and (id(dataset) in looked or len(looked) < 2):
                watched.extra |= looked.get(id(dataset)) or looked.setdefault(id(dataset), _sample_fields(dataset))
        part.put_many("loaders", self._recorder.loading.describe(training))
        self._recorder.modules.anomaly = self._anomaly.facts()
        models = self._recorder.modules.describe()
        share, steps, place = self._recorder.modules.anomaly
        if not models and steps:  # a training without modules has nothing else to hang it on
            models = (ModelFacts(anomaly_share=share, anomaly_steps=steps, anomaly_at=place),)
        part.put_many("models", models)
        causes = self._causes()
        part.put("causes", causes)  # what follows may take seconds, of which there may be few
        if self._recorder.done not in ("steps", "script ended"):  # the training may go on, or something is broken
            return
        trials = self._trials(causes)
        if any(trials.values()):
            part.put("causes", replace(causes, **trials))

    def _trials(self, causes: Causes) -> dict[str, Any]:
        """Return what is measured on copies of the model, by the field of Causes."""
        self._precision.measure()
        self._graphs.measure()
        self._uncompiled.measure(causes.compiled)
        return {
            "precision": self._precision.facts(),
            "unused_graphs": self._graphs.facts(),
            "compiled_trial": self._uncompiled.facts(),
        }

    def _causes(self) -> Causes:
        spans = self._timeline.spans()
        steps = [span for span in spans if span.lane == STEPS]
        events = self._device.within(steps)
        return Causes(
            lines=self._sampler.costs(),
            num_steps=self._num_steps,
            wall_s=self._sampler.wall_s,
            phases_s={phase.value: ns / 1e9 for phase, ns in zip(STEP_PHASES, self._phases_ns, strict=True)},
            syncs=self.copies.syncs(),
            transfers=self.copies.transfers(),
            retained=self._retained,
            collector=self._collector.facts(),
            breaks=graph_breaks(),
            compiled=compiled_functions(self._since_unix_s),
            prices=self._prices.prices(),
            denormals=self._prices.denormals,
            padding=self._padding.facts(),
            exchange=self._exchange.facts(),
            arithmetic=self._arithmetic.facts(),
            convolutions=self._convolutions.facts(),
            between_epochs_s=self._between_ns / 1e9,
            timeline=(*spans, *fetched(READING, self._fetching.spans), *drawn(events)),
            repeated=self._repeats.facts(),
            unchanging=self._unchanging.facts(),
            reductions=self._reductions.facts(),
            fallbacks=self._fallbacks.facts(),
            unused_gradients=self._gradients.facts(self._recorder.modules.modules()),
            device_work=device_work(events, steps, self._device.reason),
            framework=self._framework,
        )


def _sample_fields(dataset: Any) -> dict[str, Any]:
    """Return the fields of LoaderFacts that a look at a few samples gives."""
    prefix = look_at_samples(dataset)
    if prefix.reason:
        return {"prefix": prefix}
    with random_states_kept():
        return {"prefix": prefix, "stages": look_at_stages(dataset)}


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
        "remote": RemoteReads.of(stats),
    }
