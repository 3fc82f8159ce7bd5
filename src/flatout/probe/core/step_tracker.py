"""Where one training step ends and the next begins, told from what the script does.

With a loader, a step runs from asking for a batch to asking for the batch after an optimizer step; so accumulation,
several optimizers, several loaders and skipped steps are right by themselves. Stretches whose batches saw a forward
pass and no backward pass are validation. Without a loader, a step ends with an optimizer step, and with several
optimizers when the first of them comes round again; so too when a batch stays for many optimizer steps. Without an
optimizer of torch, a step ends with `backward()`.
"""

from collections.abc import Callable
from dataclasses import replace
from operator import add

from flatout.probe.core.probe_failure import raise_it
from flatout.probe.core.segments import AloneForwards, Segment
from flatout.probe.core.spans import CHECKPOINT, EPOCH_GAP, LEAD, TAIL, PhaseTimer
from flatout.schema.phase import Phase
from flatout.schema.run import Outside, Step

__all__ = ["StepTracker"]

_RESIDENT_STEPS = 32  # optimizer steps on one batch after which the batch counts as resident: no loader any more
_PLAIN_BACKWARDS = 8  # backward passes without any optimizer of torch after which backward() ends a step
_UNSTEPPED_BACKWARDS = 512  # the same when there is an optimizer that may only be accumulating


class StepTracker:
    """Turns the events of the training thread into steps and stretches outside them."""

    def __init__(
        self, account: PhaseTimer, on_step: Callable[[Step], None], on_outside: Callable[[Outside], None]
    ) -> None:
        """Take the account to cut, and where finished steps and stretches go."""
        self.account = account
        self.trouble: Callable[[Exception], None] = raise_it
        self.open = Segment()
        self.num_optimizers = 0
        self.num_steps = 0
        self.epochs = 0
        self.on_step = on_step
        self.on_outside = on_outside
        self._pending: list[Segment] = []  # segments of the step under way
        self._undecided: list[Segment] = []  # may be validation, may be the beginning of a step
        self._stepped = False  # the step under way has had its optimizer step and ends with the next batch
        self._training: set[int] = set()  # passes that produced steps
        self._validating: set[int] = set()
        self._cycle: set[int] = set()  # optimizers that have stepped in the step under way, without a loader
        self._cycle_size = 0
        self._resident = False  # batches stay for many optimizer steps: these make the steps
        self._between_epochs = False
        self._steps_on_batch = 0
        self._backwards = 0
        self._optimizer_steps = 0
        self._alone = AloneForwards()

    @property
    def trained_passes(self) -> set[int]:
        """Serials of the passes over loaders whose batches were trained on."""
        return self._training

    @property
    def between_epochs(self) -> bool:
        """Return whether no batch is being worked on and steps have been made."""
        return self.open.source is None and self.num_steps > 0 and self._between_epochs

    @property
    def in_validation(self) -> bool:
        """Return whether a validation runs: a pass known to be one, or by hand more forward passes than ever."""
        return self.open.source in self._validating or self._alone.validating

    @property
    def state(self) -> tuple[object, ...] | None:
        """What decides what the next events mean; None inside a step, and before an optimizer has stepped.

        What is merely counted is left out. Passes are only ever added, so their number stands for them.
        """
        if self._pending or self._undecided or not self._optimizer_steps:
            return None
        flags = (self._stepped, self._resident, self._between_epochs, self._steps_on_batch, self._cycle_size)
        passes = (self.epochs, len(self._training), len(self._validating), frozenset(self._cycle))
        return (self.open.marks, flags, passes, self._alone.now, *self._alone.recent, *self._alone.found)

    def asked(self, source: int) -> None:
        """A pass over a loader is asked for its next batch."""
        self.account.clear()
        segment = self._close(source, LEAD)
        self.open.batch = True
        self._steps_on_batch = 0
        if self._cycle:
            between = self._between_epochs
            self._finish_cycle()
            self._between_epochs = between
        self._settle(segment, asked=source)

    def exhausted(self, source: int) -> None:
        """The pass `source` had no further batch."""
        self.open.batch = False
        segment = self._close(None, LEAD)
        self._decide(source, validation=True)
        if source in self._training or any(part.source == source for part in self._pending):
            self._between_epochs = True
            self._outside(Phase.EPOCH_GAP, segment)
        elif self.num_steps:
            self._outside(Phase.VALIDATION if source in self._validating else Phase.OTHER, segment)

    def forward_begins(self) -> None:
        """An outermost module is being called; the call before it, if no backward pass came of it, stands alone."""
        segment = self.open
        trained = self._stepped or self._cycle  # the step under way has had its optimizer step
        if trained and not segment.backwards and (segment.grad_forwards or segment.plain_forwards):
            self._join(self._close(segment.source, LEAD))
            self._alone.now += 1

    def forward_done(self, with_grad: bool, acting: bool = False) -> None:
        """An outermost module has been called; `acting`: in training mode, without gradients."""
        if with_grad:
            self.open.grad_forwards += 1
        else:
            self.open.plain_forwards += 1
            self.open.acting |= acting

    def backward_done(self) -> None:
        """A backward pass has ended."""
        self.open.backwards += 1
        self._backwards += 1
        if not self._optimizer_steps and self._backwards >= _PLAIN_BACKWARDS:
            self._backward_alone()

    def _backward_alone(self) -> None:
        if self._backwards >= (_UNSTEPPED_BACKWARDS if self.num_optimizers else _PLAIN_BACKWARDS):
            self.optimizer_begins(0)
            self._optimizer_ended(0)

    def optimizer_begins(self, optimizer: int) -> None:
        """The optimizer with identity `optimizer` begins a step."""
        if optimizer in self._cycle and (self.open.source is None or self._by_hand()):
            self._finish_cycle()

    def optimizer_done(self, optimizer: int) -> None:
        """That optimizer has made its step, or its gradient scaler has skipped it."""
        self._optimizer_steps += 1
        self._optimizer_ended(optimizer)

    def finish(self) -> None:
        """The recording ends here: close what is closed by its nature, leave out the step that is half done."""
        segment = self._close(None, LEAD)
        if self._stepped:
            self._emit()
        elif self._cycle and len(self._cycle) >= self._cycle_size:
            self._finish_cycle()
        if self.num_steps and segment.end > segment.start:
            self._outside(Phase.OTHER, segment)

    def _by_hand(self) -> bool:
        """Return whether optimizer steps make the training steps: no loader's batch is being trained on."""
        source = self.open.source
        return source is None or self._resident or (source in self._validating and not self._training)

    def _optimizer_ended(self, optimizer: int) -> None:
        if self.open.source is None or self._by_hand():
            if self.open.source in self._validating:  # a validation that broke off
                self.open.source, self.open.batch = None, False
            self.open.stepped = True
            self._join(self._close(None, LEAD))
            self._cycle.add(optimizer)
            return
        self._join(self._close(self.open.source, TAIL))
        self._stepped = True
        self._steps_on_batch += 1
        if self._steps_on_batch >= _RESIDENT_STEPS and not self._training:
            self._pending.clear()
            self.open.source = None
            self.epochs = max(1, self.epochs)
            self._resident, self._stepped = True, False

    def _finish_cycle(self) -> None:
        self._cycle_size = max(self._cycle_size, len(self._cycle))
        self._cycle.clear()
        done = len(self._pending)
        while done and not self._pending[done - 1].stepped:
            done -= 1
        following, self._pending = self._pending[done:], self._pending[:done]
        if self.epochs or self._between_epochs or any(segment.batch for segment in self._pending):
            self._emit()
        else:  # the first round began with the process itself: it is start-up, not a step
            self._pending.clear()
        self._pending += following
        self.epochs = max(1, self.epochs)

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
        elif segment.backwards or segment.source in self._training:
            self._join(segment)
        elif segment.source is None and not self._resident:
            self._between(segment)
        else:
            self._undecided.append(segment)
            again = segment.source == asked and (segment.forwards > 0 or not self.num_steps)
            if again or segment.source in self._validating:
                self._decide(segment.source, validation=segment.forwards > 0)

    def _decide(self, source: int | None, *, validation: bool) -> None:
        """The undecided batches of `source` are no part of a step: validation, or a pass over the data alone."""
        decided = [segment for segment in self._undecided if segment.source in (source, None)]
        self._undecided = [segment for segment in self._undecided if segment.source not in (source, None)]
        for segment in decided:
            if segment.forwards and validation and segment.source is not None:
                self._validating.add(segment.source)
            phase = Phase.VALIDATION if segment.source in self._validating else Phase.OTHER
            if self.num_steps or phase is Phase.VALIDATION:
                self._outside(phase, segment)

    def _between(self, segment: Segment) -> None:
        """A stretch that no batch belongs to: before training, between epochs, after a validation."""
        if not self.num_steps:
            return
        if self._between_epochs:
            self._outside(Phase.VALIDATION if segment.forwards else Phase.EPOCH_GAP, segment)
        else:
            self._outside(Phase.VALIDATION if segment.forwards or self._validating else Phase.OTHER, segment)

    def _close(self, source: int | None, host: int) -> Segment:
        closed = self.open
        closed.start, closed.end, closed.slots = self.account.cut(host)
        self.open = Segment(source=source)
        return closed

    def _emit(self) -> None:
        """Report the step under way; this runs once a step inside the training, so it does little by little."""
        segments, self._pending, self._stepped = self._pending, [], False
        unused = batches = 0
        evaluated = strange = acting = plain = False
        for segment in segments:
            batches += segment.batch
            strange |= segment.source is not None and segment.source not in self._training
            if segment.grad_forwards or segment.plain_forwards:
                unused += not segment.backwards
                acting |= segment.acting
                plain |= segment.plain_forwards > 0
                evaluated |= segment.plain_forwards > 0 and not segment.acting
        if self._alone.end(unused, acting, plain):
            segments, evaluated = self._without_validation(segments), False
        if not segments:
            return
        slots = segments[0].slots
        for segment in segments[1:]:
            slots = list(map(add, slots, segment.slots))
        if slots[EPOCH_GAP]:
            self.on_outside(Outside(phase=Phase.EPOCH_GAP, start_ns=segments[0].start, wall_ns=slots[EPOCH_GAP]))
        fresh = strange and self._note_sources(segments)
        self._between_epochs = False
        self.num_steps += 1
        lead, loss, tail = slots[LEAD : TAIL + 1]
        phases = (*slots[:LEAD], lead + loss + tail)
        epoch = max(0, self.epochs - 1)
        values = (segments[0].start, sum(phases), phases, batches or 1, epoch, fresh, evaluated, (lead, loss, tail), ())
        self.on_step(tuple.__new__(Step, values))  # past the named tuple's own constructor, which is Python

    def _without_validation(self, segments: list[Segment]) -> list[Segment]:
        """Report the segments whose forward passes stand alone as validation; return the others."""
        for segment in segments:
            if segment.forwards and not segment.backwards:
                self._outside(Phase.VALIDATION, segment)
        return [segment for segment in segments if segment.backwards or not segment.forwards]

    def _note_sources(self, segments: list[Segment]) -> bool:
        """Take down which passes are trained on; return whether a new one begins with this step."""
        sources = {segment.source for segment in segments if self._trains(segment)}
        sources.discard(None)
        fresh = bool(sources) and self._training.isdisjoint(sources)
        if not sources <= self._training:
            self.epochs += fresh
            self._training |= {source for source in sources if source is not None}
            self._validating -= self._training
        return fresh

    def _trains(self, segment: Segment) -> bool:
        """Return whether a step's segment tells that its loader is a training one; a single look into one does not."""
        return segment.backwards > 0 or (segment.batch and not segment.forwards and self.num_steps > 0)

    def _outside(self, phase: Phase, segment: Segment) -> None:
        """Report a stretch, with the checkpoints in it apart."""
        wall, saved = segment.end - segment.start, segment.slots[CHECKPOINT]
        if saved and phase is not Phase.CHECKPOINT:
            self.on_outside(Outside(phase=Phase.CHECKPOINT, start_ns=segment.start, wall_ns=saved))
        stretch = Outside(phase=phase, start_ns=segment.start, wall_ns=wall - saved, num_batches=int(segment.batch))
        passes = segment.grad_forwards if phase is Phase.VALIDATION else 0
        self.on_outside(replace(stretch, with_grad=True, grad_passes=passes) if passes else stretch)
