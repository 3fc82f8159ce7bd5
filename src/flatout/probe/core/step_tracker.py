"""Where one training step ends and the next begins, told from what the script does.

With a loader, a step runs from asking for a batch to asking for the batch after an optimizer step; so accumulation,
several optimizers, several loaders and skipped steps are right by themselves. Stretches whose batches saw a forward
pass and no backward pass are validation. Without a loader, a step ends with an optimizer step, and with several
optimizers when the first of them comes round again; so too when a batch stays for many optimizer steps. Without an
optimizer of torch, a step ends with `backward()`.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from operator import add

from flatout.probe.core.probe_failure import raise_it
from flatout.probe.core.segments import AloneForwards, Segment
from flatout.probe.core.spans import CHECKPOINT, EPOCH_GAP, LEAD, TAIL, PhaseTimer
from flatout.schema.phase import Phase
from flatout.schema.run import Outside, Step

__all__ = ["Activity", "StepTracker", "activity_of"]

_RESIDENT_STEPS = 32  # optimizer steps on one batch after which the batch counts as resident: no loader any more
_PLAIN_BACKWARDS = 8  # backward passes without any optimizer of torch after which backward() ends a step
_UNSTEPPED_BACKWARDS = 512  # the same when there is an optimizer that may only be accumulating


class Activity(Enum):
    """What a training does at a moment."""

    STEP = "step"
    VALIDATION = "validation"
    BETWEEN_EPOCHS = "between epochs"


class LoaderPasses:
    """The passes over loaders, by their serials, and which of them are the training's."""

    def __init__(self) -> None:
        """Know none yet."""
        self.trained: set[int] = set()  # produced steps
        self.validated: set[int] = set()
        self.epochs = 0
        self.between = False  # one that is trained on has ended, and no step has been made since

    def note(self, segments: list[Segment], *, stepped: bool) -> bool:
        """Take down which passes a step is made of; return whether a new one begins. `stepped`: it is not the first."""
        sources = {segment.source for segment in segments if _trains(segment, stepped)}
        sources.discard(None)
        fresh = bool(sources) and self.trained.isdisjoint(sources)
        if not sources <= self.trained:
            self.epochs += fresh
            self.trained |= {source for source in sources if source is not None}
            self.validated -= self.trained
        return fresh


def _trains(segment: Segment, stepped: bool) -> bool:
    """Return whether a step's segment tells that its loader is a training one; a single look into one does not."""
    return segment.backwards > 0 or (segment.batch and not segment.forwards and stepped)


class OptimizerSteps:
    """The steps of optimizers, and when they, or `backward()`, make the training steps without a loader's batches."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.number = 0
        self.steps = 0
        self.backwards = 0
        self.cycle: set[int] = set()  # optimizers that have stepped in the step under way, without a loader
        self.cycle_size = 0
        self.on_batch = 0
        self.of_step: set[int] = set()  # optimizers that have stepped since the latest step was reported
        self.resident = False  # batches stay for many optimizer steps: these make the steps

    def replaced(self) -> bool:
        """Return whether there have been so many backward passes that `backward()` ends a step."""
        return self.backwards >= (_UNSTEPPED_BACKWARDS if self.number else _PLAIN_BACKWARDS)


class StepTracker:
    """Turns the events of the training thread into steps and stretches outside them."""

    def __init__(
        self, account: PhaseTimer, on_step: Callable[[Step], None], on_outside: Callable[[Outside], None]
    ) -> None:
        """Take the account to cut, and where finished steps and stretches go."""
        self.account = account
        self.trouble: Callable[[Exception], None] = raise_it
        self.open = Segment()
        self.passes = LoaderPasses()
        self.optimizers = OptimizerSteps()
        self.alone = AloneForwards()
        self.num_steps = 0
        self.on_step = on_step
        self.on_outside = on_outside
        self._pending: list[Segment] = []  # segments of the step under way
        self._undecided: list[Segment] = []  # may be validation, may be the beginning of a step
        self._stepped = False  # the step under way has had its optimizer step and ends with the next batch

    @property
    def state(self) -> tuple[object, ...] | None:
        """What decides what the next events mean; None inside a step, and before an optimizer has stepped.

        What is merely counted is left out. Passes are only ever added, so their number stands for them.
        """
        passes, optimizers, alone = self.passes, self.optimizers, self.alone
        if self._pending or self._undecided or not optimizers.steps:
            return None
        flags = (self._stepped, optimizers.resident, passes.between, optimizers.on_batch, optimizers.cycle_size)
        known = (passes.epochs, len(passes.trained), len(passes.validated), frozenset(optimizers.cycle))
        return (self.open.marks, flags, known, alone.now, *alone.recent, *alone.found)

    def asked(self, source: int) -> None:
        """A pass over a loader is asked for its next batch."""
        self.account.clear()
        segment = self._close(source, LEAD)
        self.open.batch = True
        optimizers = self.optimizers
        optimizers.on_batch = 0
        if optimizers.cycle:
            between = self.passes.between
            self._finish_cycle()
            self.passes.between = between
        self._settle(segment, asked=source)

    def exhausted(self, source: int) -> None:
        """The pass `source` had no further batch."""
        self.open.batch = False
        segment = self._close(None, LEAD)
        self._decide(source, validation=True)
        if source in self.passes.trained or any(part.source == source for part in self._pending):
            self.passes.between = True
            self._outside(Phase.EPOCH_GAP, segment)
        elif self.num_steps:
            self._outside(Phase.VALIDATION if source in self.passes.validated else Phase.OTHER, segment)

    def forward_begins(self) -> None:
        """An outermost module is being called; the call before it, if no backward pass came of it, stands alone."""
        segment = self.open
        trained = self._stepped or self.optimizers.cycle  # the step under way has had its optimizer step
        if trained and not segment.backwards and (segment.grad_forwards or segment.plain_forwards):
            self._join(self._close(segment.source, LEAD))
            self.alone.now += 1

    def backward_done(self) -> None:
        """A backward pass has ended."""
        self.open.backwards += 1
        optimizers = self.optimizers
        optimizers.backwards += 1
        if not optimizers.steps and optimizers.replaced():
            self.optimizer_begins(0)
            self._optimizer_ended(0)

    def optimizer_begins(self, optimizer: int) -> None:
        """The optimizer with identity `optimizer` begins a step."""
        if optimizer in self.optimizers.cycle and (self.open.source is None or self._by_hand()):
            self._finish_cycle()

    def optimizer_done(self, optimizer: int) -> None:
        """That optimizer has made its step, or its gradient scaler has skipped it."""
        self.optimizers.steps += 1
        self.optimizers.of_step.add(optimizer)
        self._optimizer_ended(optimizer)

    def finish(self) -> None:
        """The recording ends here: close what is closed by its nature, leave out the step that is half done."""
        segment = self._close(None, LEAD)
        if self._stepped:
            self._emit()
        elif self.optimizers.cycle and len(self.optimizers.cycle) >= self.optimizers.cycle_size:
            self._finish_cycle()
        if self.num_steps and segment.end > segment.start:
            self._outside(Phase.OTHER, segment)

    def _by_hand(self) -> bool:
        """Return whether optimizer steps make the training steps: no loader's batch is being trained on."""
        source, passes = self.open.source, self.passes
        return source is None or self.optimizers.resident or (source in passes.validated and not passes.trained)

    def _optimizer_ended(self, optimizer: int) -> None:
        if self.open.source is None or self._by_hand():
            if self.open.source in self.passes.validated:  # a validation that broke off
                self.open.source, self.open.batch = None, False
            self.open.stepped = True
            self._join(self._close(None, LEAD))
            self.optimizers.cycle.add(optimizer)
            return
        self._join(self._close(self.open.source, TAIL))
        self._stepped = True
        optimizers = self.optimizers
        optimizers.on_batch += 1
        if optimizers.on_batch >= _RESIDENT_STEPS and not self.passes.trained:
            self._pending.clear()
            self.open.source = None
            self.passes.epochs = max(1, self.passes.epochs)
            optimizers.resident, self._stepped = True, False

    def _finish_cycle(self) -> None:
        optimizers, passes = self.optimizers, self.passes
        optimizers.cycle_size = max(optimizers.cycle_size, len(optimizers.cycle))
        optimizers.cycle.clear()
        done = len(self._pending)
        while done and not self._pending[done - 1].stepped:
            done -= 1
        following, self._pending = self._pending[done:], self._pending[:done]
        if passes.epochs or passes.between or any(segment.batch for segment in self._pending):
            self._emit()
        else:  # the first round began with the process itself: it is start-up, not a step
            self._pending.clear()
        self._pending += following
        passes.epochs = max(1, passes.epochs)

    def _join(self, segment: Segment) -> None:
        """Make `segment`, and what was undecided before it, part of the step under way."""
        if self._undecided:
            self._pending = [*self._undecided, *self._pending]
            self._undecided = []
        self._pending.append(segment)

    def _settle(self, segment: Segment, asked: int) -> None:
        if self._stepped:
            self._join(segment)
            self._emit()
        elif segment.backwards or segment.source in self.passes.trained:
            self._join(segment)
        elif segment.source is None and not self.optimizers.resident:
            self._between(segment)
        else:
            self._undecided.append(segment)
            again = segment.source == asked and (segment.forwards > 0 or not self.num_steps)
            if again or segment.source in self.passes.validated:
                self._decide(segment.source, validation=segment.forwards > 0)

    def _decide(self, source: int | None, *, validation: bool) -> None:
        """The undecided batches of `source` are no part of a step: validation, or a pass over the data alone."""
        decided = [segment for segment in self._undecided if segment.source in (source, None)]
        self._undecided = [segment for segment in self._undecided if segment.source not in (source, None)]
        for segment in decided:
            if segment.forwards and validation and segment.source is not None:
                self.passes.validated.add(segment.source)
            phase = Phase.VALIDATION if segment.source in self.passes.validated else Phase.OTHER
            if self.num_steps or phase is Phase.VALIDATION:
                self._outside(phase, segment)

    def _between(self, segment: Segment) -> None:
        """A stretch that no batch belongs to: before training, between epochs, after a validation."""
        if not self.num_steps:
            return
        if self.passes.between:
            self._outside(Phase.VALIDATION if segment.forwards else Phase.EPOCH_GAP, segment)
        else:
            self._outside(Phase.VALIDATION if segment.forwards or self.passes.validated else Phase.OTHER, segment)

    def _close(self, source: int | None, host: int) -> Segment:
        closed = self.open
        closed.start, closed.end, closed.slots = self.account.cut(host)
        self.open = Segment(source=source)
        return closed

    def _emit(self) -> None:
        """Report the step under way; this runs once a step inside the training, so it does little by little."""
        segments, self._pending, self._stepped, passes = self._pending, [], False, self.passes
        unused = batches = 0
        evaluated = strange = acting = plain = False
        for segment in segments:
            batches += segment.batch
            strange |= segment.source is not None and segment.source not in passes.trained
            if segment.grad_forwards or segment.plain_forwards:
                unused += not segment.backwards
                acting |= segment.acting
                plain |= segment.plain_forwards > 0
                evaluated |= segment.plain_forwards > 0 and not segment.acting
        if self.alone.end(unused, acting, plain):
            segments, evaluated = self._without_validation(segments), False
        if not segments:
            return
        slots = segments[0].slots
        for segment in segments[1:]:
            slots = list(map(add, slots, segment.slots))
        if slots[EPOCH_GAP]:
            self.on_outside(Outside(phase=Phase.EPOCH_GAP, start_ns=segments[0].start, wall_ns=slots[EPOCH_GAP]))
        fresh = strange and passes.note(segments, stepped=self.num_steps > 0)
        passes.between = False
        self.num_steps += 1
        lead, loss, tail = slots[LEAD : TAIL + 1]
        phases = (*slots[:LEAD], lead + loss + tail)
        epoch = max(0, passes.epochs - 1)
        values = (segments[0].start, sum(phases), phases, batches or 1, epoch, fresh, evaluated, (lead, loss, tail), ())
        self.on_step(tuple.__new__(Step, values))  # past the named tuple's own constructor, which is Python

    def _without_validation(self, segments: list[Segment]) -> list[Segment]:
        """Report the segments whose forward passes stand alone as validation; return the others."""
        for segment in segments:
            if segment.forwards and not segment.backwards:
                self._outside(Phase.VALIDATION, segment)
        return [segment for segment in segments if segment.backwards or not segment.forwards]

    def _outside(self, phase: Phase, segment: Segment) -> None:
        """Report a stretch, with the checkpoints in it apart."""
        wall, saved = segment.end - segment.start, segment.slots[CHECKPOINT]
        if saved and phase is not Phase.CHECKPOINT:
            self.on_outside(Outside(phase=Phase.CHECKPOINT, start_ns=segment.start, wall_ns=saved))
        stretch = Outside(phase=phase, start_ns=segment.start, wall_ns=wall - saved, num_batches=int(segment.batch))
        passes = segment.grad_forwards if phase is Phase.VALIDATION else 0
        self.on_outside(replace(stretch, with_grad=True, grad_passes=passes) if passes else stretch)


def activity_of(tracker: StepTracker) -> Activity:
    """Return what the training does now, as far as `tracker` knows."""
    source = tracker.open.source
    if source in tracker.passes.validated or tracker.alone.validating:  # by hand: more forward passes than ever
        return Activity.VALIDATION
    if source is None and tracker.num_steps > 0 and tracker.passes.between:
        return Activity.BETWEEN_EPOCHS
    return Activity.STEP
