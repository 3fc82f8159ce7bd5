"""The deep run: one short execution in which probes look for causes. Never timed."""

import functools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.probe import DeepContext, probes
from flatout.probe.core.probe_failure import guarded
from flatout.probe.core.seams import Seams
from flatout.probe.core.step_tracker import Activity, activity_of
from flatout.probe.loader.fetching import FetchStats, FetchWatch, dataset_key
from flatout.probe.loader.repeated_samples import look_at_samples, random_states_kept
from flatout.probe.loader.transform_stages import look_at_stages
from flatout.probe.loader.workers import watch_workers
from flatout.probe.model.anomaly_detection import AnomalyTrial
from flatout.probe.model.modules import ModuleWatch
from flatout.probe.system.device_trace import DeviceTrace, device_work, drawn
from flatout.probe.system.line_sampler import Doing, LineSampler, where
from flatout.probe.system.setting_trial import SettingTrialWatch
from flatout.probe.system.timeline import DRAWN_FROM, READING, STEPS, Timeline, fetched
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.plain import to_plain
from flatout.schema.run import Causes, ModelFacts, RemoteReads, Step

if TYPE_CHECKING:
    from flatout.probe.recorder import Recorder

__all__ = ["DeepWatch"]

_MOMENTS = ("start", "step", "called", "backward", "stop", "measure")
_SLOW_NS = 100_000_000  # so long a step, and a deep run may end before the steps that are drawn best


class TrainingPlace:
    """What the training thread is doing, at every moment, and how long it was between epochs."""

    def __init__(self, event_log: EventLog) -> None:
        """Take the log whose account and tracker know."""
        self.doing = Doing()
        self.between_ns = 0
        self._changed_at = 0
        self._tracker = event_log.tracker

    def in_step(self) -> bool:
        """Return whether the training is within a step that counts: no validation, not between epochs."""
        return activity_of(self._tracker) is Activity.STEP

    def between_epochs(self) -> bool:
        """Return whether it is between two epochs."""
        return self.doing.where[0] == Phase.EPOCH_GAP

    def change(self, moment: int) -> None:
        """An event was told."""
        if self.doing.where[0] == Phase.EPOCH_GAP:
            self.between_ns += moment - self._changed_at
        self._changed_at = moment
        self.doing.where = self._where()

    def _where(self) -> tuple[str, str]:
        slot, activity = self._tracker.account.current, activity_of(self._tracker)
        if activity is Activity.VALIDATION:
            return Phase.VALIDATION, ""
        return where(slot, activity is Activity.BETWEEN_EPOCHS)


class DeepProbes:
    """The probes of the deep run that are a file each, with their watches."""

    def __init__(self, context: DeepContext) -> None:
        """Make the watch of each in `context`."""
        self.context = context
        self._probes = [(probe, probe.make(context)) for probe in probes()]
        self._told = {moment: self._tellers(moment) for moment in _MOMENTS}

    def watch(self, name: str) -> Any:
        """Return the watch of the probe with that name."""
        return next(watch for probe, watch in self._probes if probe.name == name)

    def install(self, seams: Seams, modules: ModuleWatch) -> None:
        """Put their seams in place, and what they have around the calls of modules."""
        for probe, watch in self._probes:
            if probe.install is not None:
                probe.install(watch, seams)
            if probe.around is not None:
                modules.around.append(functools.partial(probe.around, watch))
            if probe.around_always is not None:
                modules.around_always.append(functools.partial(probe.around_always, watch))

    def tell(self, moment: str, *given: Any) -> None:
        """Tell every probe that asks to be told of that moment."""
        for tell, watch in self._told[moment]:
            tell(watch, *given)

    def causes(self) -> dict[str, Any]:
        """Return the facts that they give."""
        return {name: give(watch) for probe, watch in self._probes for name, give in probe.causes.items()}

    def trials(self) -> dict[str, Any]:
        """Return the facts that they give after they have measured."""
        return {name: give(watch) for probe, watch in self._probes for name, give in probe.trials.items()}

    def _tellers(self, moment: str) -> list[tuple[Callable[..., None], Any]]:
        return [(tell, watch) for probe, watch in self._probes if (tell := getattr(probe, moment)) is not None]


class StepTotals:
    """The steps of a deep run, added up."""

    def __init__(self) -> None:
        """There is none yet."""
        self.count = 0
        self._phases_ns = [0] * len(STEP_PHASES)

    def add(self, step: Step) -> None:
        """Take one."""
        self.count += 1
        for index, nanoseconds in enumerate(step.phases_ns):
            self._phases_ns[index] += nanoseconds

    def phases_s(self) -> dict[str, float]:
        """Return the seconds of each phase."""
        return {phase.value: ns / 1e9 for phase, ns in zip(STEP_PHASES, self._phases_ns, strict=True)}


class DeepWatch:
    """Finds causes in one short execution of the script.

    Itself it samples lines, times fetches, draws a few steps, and switches settings that are doubted; the rest is
    done by probes (`probe/core/probe.py`).
    """

    def __init__(self, recorder: "Recorder") -> None:
        """Take the recorder whose account says what phase is running."""
        self._recorder = recorder
        event_log = recorder.probes.event_log
        self.trouble: Callable[[Exception], None] = lambda error: event_log.tracker.trouble(error)
        self._place = place = TrainingPlace(event_log)
        self._fetching = FetchWatch(place.doing)
        self._sampler = LineSampler("main", place.doing)
        self._totals = StepTotals()
        self._anomaly = AnomalyTrial()
        self._settings = SettingTrialWatch(recorder.probes.training.optimizers, lambda: recorder.probes.loading.loaders)
        self._timeline, self._device = Timeline(lambda: place.doing.where[0]), DeviceTrace()
        self._offered: list[tuple[str, Callable[[bool], None]]] = []
        context = DeepContext(
            event_log=event_log,
            fail=lambda error: self.trouble(error),
            in_step=place.in_step,
            between_epochs=place.between_epochs,
            optimizers=recorder.probes.training.optimizers,
            over=recorder.probes.training.over,
            modules=lambda: self._recorder.probes.modules.modules(),
            aside=lambda: self._settings.other,
            offer=lambda name, switch: self._offered.append((name, switch)),
        )
        self._probes = DeepProbes(context)
        lines = self.watch("backward-passes").lines
        self._anomaly.ours = lambda: bool(lines.on)

    def watch(self, name: str) -> Any:
        """Return the watch of the probe with that name."""
        return self._probes.watch(name)

    def install(self, seams: Seams) -> None:
        """Start sampling the training thread, and every worker."""
        self._fetching.install(seams)
        watch_workers(seams, Path(self._recorder.order.folder) / "parts")
        for each in (self._anomaly, self._settings, self._device):
            each.install(seams)
        light = self._recorder.probes
        self._probes.install(seams, light.modules)
        light.event_log.on_change = self._changed
        light.training.on_backward = self._before_backward
        light.modules.on_forward = self._anomaly.apply
        light.modules.on_call = self._called

    @guarded
    def step(self, step: Step, number: int) -> None:
        """Take one finished step; sampling begins with the second."""
        if number == 1:
            self._probes.context.since_unix_s = time.time()
            self._recorder.probes.event_log.thread = get_ident()
            self._sampler.start()
            self._probes.tell("start")
            return
        self._totals.add(step)
        self._anomaly.step(step, with_host=not self._recorder.probes.modules.modules())
        self._probes.tell("step", step, number)
        if not self._anomaly.priced:
            self._settings.step(step, number)
            while self._offered:
                self._settings.offer(*self._offered.pop(0))
        if self._settings.switching or self._anomaly.priced:
            self._timeline.end(step.start_ns + step.wall_ns)
        self._timeline.step(step, number)
        self._follow_device(step, number)

    def _follow_device(self, step: Step, number: int) -> None:
        """Record what the device does in the steps that are drawn, and little more."""
        if self._timeline.ended:
            self._device.stop()
        elif number >= DRAWN_FROM or step.wall_ns > _SLOW_NS:
            self._device.start()

    def _changed(self, moment: int) -> None:
        self._place.change(moment)
        self._timeline.changed(moment)

    def _called(self, module: Any, arguments: Any) -> None:
        if not self._waits():
            self._probes.tell("called", module, arguments)

    def _waits(self) -> bool:
        """Return whether the script is at another training, before that which is looked into."""
        return self._recorder.probes.event_log.tracker.num_steps + 1 < self._recorder.order.first_step

    @guarded
    def _before_backward(self, tensor: Any) -> None:
        if self._waits():
            return
        self._probes.tell("backward", tensor)
        self._anomaly.apply()

    # -- the end ------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write what was found."""
        self._sampler.stop()
        self._anomaly.end()
        self._settings.end()
        self._device.stop()
        self._probes.tell("stop")
        part = self._recorder.part
        self._describe_loaders()
        share, steps, place = self._anomaly.facts()
        models = self._recorder.probes.modules.describe((share, steps, place))
        if not models and steps:  # a training without modules has nothing else to hang it on
            models = (ModelFacts(anomaly_share=share, anomaly_steps=steps, anomaly_at=place),)
        part.put_many("models", models)
        causes = self._causes()
        part.put("causes", causes)  # what follows may take seconds, of which there may be few
        if self._recorder.done not in ("steps", "script ended"):  # the training may go on, or something is broken
            return
        self._probes.tell("measure", causes)
        trials = self._probes.trials()
        if any(trials.values()):
            part.put("causes", replace(causes, **trials))

    def _describe_loaders(self) -> None:
        training = self._recorder.probes.event_log.tracker.passes.trained
        looked: dict[int, dict[str, Any]] = {}  # loaders made anew for each epoch share their dataset
        for watched in self._recorder.probes.loading.loaders:
            loader = watched.ref()
            dataset = loader.dataset if loader is not None else watched.dataset()
            if dataset is None or not watched.passes:
                continue
            watched.extra = _fetch_fields(self._fetching.stats.get(dataset_key(dataset)))
            if watched.passes & training and (id(dataset) in looked or len(looked) < 2):
                watched.extra |= looked.get(id(dataset)) or looked.setdefault(id(dataset), _sample_fields(dataset))
        self._recorder.part.put_many("loaders", self._recorder.probes.loading.describe(training))

    def _causes(self) -> Causes:
        spans = self._timeline.spans()
        steps = [span for span in spans if span.lane == STEPS]
        events = self._device.within(steps)
        found = self._probes.causes()
        return Causes(
            lines=self._sampler.costs(),
            num_steps=self._totals.count,
            wall_s=self._sampler.wall_s,
            phases_s=self._totals.phases_s(),
            prices=self._settings.prices(),
            denormals=self._settings.denormals,
            between_epochs_s=self._place.between_ns / 1e9,
            timeline=(*spans, *fetched(READING, self._fetching.spans), *drawn(events)),
            device_work=device_work(events, steps, self._device.reason),
            **found,
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
        "sample_queued_s": stats["sample_queued_ns"] / count / 1e9,
        "collate_s": stats["collate_ns"] / count / 1e9,
        "sampler_s": stats["sampler_ns"] / max(1, stats["sampled"]) / 1e9,
        "remote": RemoteReads.of(stats),
    }
