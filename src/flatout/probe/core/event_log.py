"""What the training thread passes, event by event: written down at once, worked out later, many steps at a time.

A probe in the training must be cheap where caches are cold: between two kernels every call of a Python function costs
about 1 us, five times what it costs in a tight loop (measured on the 0.3 ms steps of benchmarks/overhead.py). So a seam
only notes what happened and when, two calls of C; every 20 ms, at the end of a step, the account and the step tracker
are told all of it in one go, where it costs a fraction, and steps that repeat are told together (`step_pattern`). A
deep run, whose sampler asks at any moment what phase is running, and a run with a device clock tell them at once.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from threading import get_ident
from typing import Any, Protocol

from flatout.probe.core.clock import DeviceClock
from flatout.probe.core.clock import now as host_clock
from flatout.probe.core.spans import (
    BACKWARD,
    CHECKPOINT,
    EPOCH_GAP,
    FORWARD,
    INPUT,
    LEAD,
    LOSS,
    NUM_SLOTS,
    OPTIMIZER,
    TAIL,
    PhaseTimer,
)
from flatout.probe.core.step_pattern import Event, StepPattern
from flatout.probe.core.step_tracker import StepTracker
from flatout.probe.core.tracing import Tracing
from flatout.schema.run import Outside, Step

__all__ = ["EventLog", "LoopEvents"]

_HOST = (LEAD, LOSS, TAIL)
_NEVER = 1 << 62


class ForwardEvents:
    """The events of forward passes."""

    def __init__(self, events: "LoopEvents") -> None:
        """Be told to the account and the tracker of `events`."""
        self._events = events
        self.functions: list[bool] = []  # compiled functions under way: whether each is a forward pass

    def begins(self) -> None:
        """An outermost module is called."""
        segment = self._events.tracker.open
        if (segment.grad_forwards or segment.plain_forwards) and self._events.account.current in _HOST:
            self._events.tracker.forward_begins()
        self._events.account.enter(FORWARD)
        if self._events.device is not None:
            self._events.device.begin(0)

    def ends(self) -> None:
        """An outermost module was called with gradients."""
        self._events.leave_device(LOSS)
        self._events.tracker.open.forward_done(True)

    def plain_ends(self) -> None:
        """An outermost module in evaluation mode was called without gradients."""
        self._events.leave_device()
        self._events.tracker.open.forward_done(False)

    def acting_ends(self) -> None:
        """An outermost module in training mode was called without gradients."""
        self._events.leave_device()
        self._events.tracker.open.forward_done(False, acting=True)

    def function_begins(self) -> None:
        """A compiled function is called: a forward pass when host code does it, else part of what runs."""
        outermost = self._events.account.current in _HOST
        self.functions.append(outermost)
        if outermost:
            self.begins()
        else:
            self._events.account.enter(self._events.account.current)

    def function_ends(self) -> None:
        """A compiled function returns."""
        if self.functions.pop():
            self.ends()
        else:
            self._events.account.leave()


class FetchListener(Protocol):
    """Who is told of a loader that is asked for a batch; `waits` and `wait_ns` are those before this one."""

    def before_fetch(self, waits: int) -> None:
        """A batch is about to be made, after so many of this loader."""

    def after_fetch(self, waits: int, wait_ns: int, taken_ns: int) -> None:
        """It is made, in `taken_ns`; those before it took `wait_ns` in all."""


class LoopEvents:
    """What can happen in the training thread, as events: each tells the account and the tracker one thing."""

    def __init__(self, account: PhaseTimer, tracker: StepTracker) -> None:
        """Take those that are told."""
        self.account = account
        self.tracker = tracker
        self.device: DeviceClock | None = None  # only where events are told at once
        self.enter: list[Event] = [partial(account.enter, slot) for slot in range(NUM_SLOTS)]
        self.leave: Event = account.leave
        self.leave_to: dict[int, Event] = {part: partial(account.leave, part) for part in _HOST}
        self.forward = ForwardEvents(self)
        self.backward_begins: Event = self._backward_begins
        self.backward_ends: Event = self._backward_ends
        self.loader_begins: Event = partial(account.enter, EPOCH_GAP)
        self.checkpoint_from_host: Event = self._checkpoint_from_host
        self.fetch_listeners: list[FetchListener] = []  # told at once, before and after a loader makes a batch

    def asked(self, source: int) -> Event:
        """Return the event that the pass `source` over a loader is asked for its next batch."""
        return partial(self._asked, source)

    def _asked(self, source: int) -> None:
        self.tracker.asked(source)
        self.account.enter(INPUT)

    def exhausted(self, source: int) -> Event:
        """Return the event that the pass `source` had no further batch."""
        return partial(self.tracker.exhausted, source)

    def _backward_begins(self) -> None:
        """`backward()` is called."""
        self.account.enter(BACKWARD)
        if self.device is not None:
            self.device.begin(1)

    def _backward_ends(self) -> None:
        """`backward()` returns."""
        self.leave_device(TAIL)
        self.tracker.backward_done()

    def optimizer_begins(self, optimizer: int) -> Event:
        """Return the event that the optimizer of this identity begins a step."""
        return partial(self._optimizer_begins, optimizer)

    def _optimizer_begins(self, optimizer: int) -> None:
        self.tracker.optimizer_begins(optimizer)
        self.account.enter(OPTIMIZER)
        if self.device is not None:
            self.device.begin(2)

    def optimizer_ends(self, optimizer: int) -> Event:
        """Return the event that it has made its step."""
        return partial(self._optimizer_ends, optimizer)

    def _optimizer_ends(self, optimizer: int) -> None:
        self.leave_device(TAIL)
        self.tracker.optimizer_done(optimizer)

    def leave_device(self, host: int = -1) -> None:
        """Leave a span that has marks on the device."""
        if self.device is not None:
            self.device.finish()
        self.account.leave(host)

    def _checkpoint_from_host(self) -> None:
        """A call that is part of a checkpoint when host code makes it, else of whatever runs."""
        current = self.account.current
        self.account.enter(CHECKPOINT if current in _HOST else current)


class EventLog:
    """The events of one training thread, in order, and the account and tracker that they are told to.

    `record((event, moment))` takes one event; at the ends of steps a seam asks `if moment >= tape.due` and calls
    `replay()`. That may raise what the receiver of a step raises to end the script.
    """

    def __init__(
        self, on_step: Callable[[Step], None], on_outside: Callable[[Outside], None],
        clock: Callable[[], int] = host_clock, interval_ns: int = 0,
    ) -> None:  # fmt: skip
        """Take where finished steps and stretches go, and how long events may wait before they are told."""
        self.now = clock
        self.tracker = StepTracker(PhaseTimer(clock()), on_step, on_outside)
        self.events = LoopEvents(self.tracker.account, self.tracker)
        self.thread = get_ident()
        self.tracing = Tracing()
        self.fetching = False  # a loader is making a batch: a module called meanwhile is part of the input
        self.on_change: Callable[[int], None] | None = None  # called after each event, where they are told at once
        self.interval_ns = interval_ns
        self.due = 0
        self._recorded: list[Any] = []
        self.record: Callable[[Iterable[Any]], None] = self._recorded.extend
        self._rounds = StepPattern(self.tracker.account, self.tracker, self.events.forward.functions)

    # -- telling ------------------------------------------------------------------------------------------------

    def at_once(self) -> None:
        """From now on tell every event the moment it is recorded."""
        self.replay(whole=True)
        self.due = _NEVER
        self.record = self._teller()

    def replay(self, *, whole: bool = False, within: int = -1) -> None:
        """Tell what was recorded, in order; a failure goes to the tracker's `trouble`, events after it are dropped.

        Unless all is wanted, the beginning of a round of events that is known already waits for its end. Where none
        waits, the time that telling takes is charged to the slot `within`: to the call that it happens in, whose end
        was told already.
        """
        events = self._recorded[:]
        self._recorded.clear()
        if not events:
            return
        self.due = events[-1] + self.interval_ns if self.due != _NEVER else _NEVER
        try:
            told = self._rounds.tell(events[::2], events[1::2], whole=whole)
            self._recorded[:0] = events[2 * told :]
            if within >= 0 and not self._recorded:
                self.tracker.account.charge(within, self.now())
        except Exception as error:
            self.tracker.trouble(error)

    def _teller(self) -> Callable[[Iterable[Any]], None]:
        """Return what tells one event at once."""
        recorded, account = self._recorded, self.tracker.account

        def tell(event_and_moment: Iterable[Any]) -> None:
            if recorded:  # recorded while this was being asked for
                self.replay(whole=True)
            event, account.moment = event_and_moment
            try:
                event()
                if self.on_change is not None:
                    self.on_change(account.moment)
            except Exception as error:
                self.tracker.trouble(error)

        return tell

    def finish(self) -> None:
        """Tell the rest and end the account here."""
        self.replay(whole=True)
        self.tracker.account.moment = self.now()
        self.tracker.finish()

    # -- spans off the hot path ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def span(self, begins: Event) -> Iterator[None]:
        """Record a span around a block, in the training thread only."""
        if get_ident() != self.thread:
            yield
            return
        self.record((begins, self.now()))
        try:
            yield
        finally:
            self.record((self.events.leave, self.now()))
