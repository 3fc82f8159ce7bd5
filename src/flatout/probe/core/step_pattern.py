"""Step patterns: the same events in the same order, step after step, worked out for many steps in one go.

What an event means to account and tracker depends on the events before it, never on the moments: these only become
sums. So a round of events that leaves both in the state it found them in will do the same the next time, and its step
is a sum of differences between its moments. Such a round is told event by event once more, and what it does taken
down; from then on the moments of its repetitions are added up in columns, at a few C calls for all steps together.
Whatever is no such round is told event by event.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from itertools import repeat
from operator import add, sub
from typing import Any

from flatout.probe.core.spans import EPOCH_GAP, LEAD, NUM_SLOTS, TAIL, PhaseTimer
from flatout.probe.core.step_tracker import StepTracker
from flatout.schema.run import Outside, Step

__all__ = ["Event", "StepPattern"]

Event = Callable[[], None]
"""Tells the account and the tracker one thing; the moment it happened is set before."""

_PATIENCE = 32  # steps from one round that is learnt to the next, for it takes several times as long as telling it
_FEW = 4  # repetitions below which columns cost more than telling


class _Round:
    """One round of events, the last of which reports a step: what the account makes of the time between them."""

    def __init__(self, events: list[Event], slots: list[int], cut: int, step: Step, state: object) -> None:
        """Take the slot that was charged before each event, and the last event at which the account was cut."""
        self.events = events
        self.state = state
        self._cut = cut
        self._slots = slots
        self._constants = [repeat(value) for value in step[3:7]]  # what is no time
        gaps = [[number for number, slot in enumerate(slots) if slot == wanted] for wanted in range(NUM_SLOTS)]
        self._inside = [[number for number in numbers if number <= cut] for numbers in gaps]  # of the step reported
        self._beyond = [[number for number in numbers if number > cut] for numbers in gaps]  # of the step after it

    def repetitions(self, events: list[Event], at: int) -> int:
        """Return how many times in a row the round is found in `events` from `at` on."""
        size, end = len(self.events), at
        while events[end : end + size] == self.events:
            end += size
        return (end - at) // size

    def steps(self, account: PhaseTimer, moments: list[int]) -> Iterator[Step]:
        """Return the steps that rounds at `moments` make of `account`, which stays as it is until `move`."""
        size = len(self.events)
        columns = [moments[number::size] for number in range(size)]
        count = len(columns[0])
        columns.append([account.last, *columns[-1][:-1]])  # number -1: the last event of the round before
        slots = [
            _with_carry(_sums(columns, inside), _sums(columns, beyond), carry, count)
            for inside, beyond, carry in zip(self._inside, self._beyond, account.totals, strict=True)
        ]
        starts, ends = [account.start, *columns[self._cut][:-1]], columns[self._cut]
        lead, loss, tail = slots[LEAD : TAIL + 1]
        phases = zip(*slots[:LEAD], map(add, map(add, lead, loss), tail), strict=True)
        parts = zip(lead, loss, tail, strict=True)
        values = zip(starts, map(sub, ends, starts), phases, *self._constants, parts, repeat(()), strict=False)
        return map(tuple.__new__, repeat(Step), values)  # past the named tuple's own constructor, which is Python

    def move(self, account: PhaseTimer, moments: list[int]) -> None:
        """Bring `account` to the end of rounds at `moments`."""
        last = moments[-len(self.events) :]
        totals = [0] * NUM_SLOTS
        for number in range(self._cut + 1, len(last)):
            totals[self._slots[number]] += last[number] - last[number - 1]
        account.go_on(last[self._cut], last[-1], totals)


def _sums(columns: list[list[int]], numbers: list[int]) -> list[int]:
    """Return, a value a round, the time before these events; empty when there are none."""
    gaps = [map(sub, columns[number], columns[number - 1]) for number in numbers]
    return list(reduce(lambda total, gap: map(add, total, gap), gaps)) if gaps else []


def _with_carry(inside: list[int], beyond: list[int], carry: int, count: int) -> list[int]:
    """Return what is `inside` the round with what the round before had `beyond` its cut, `carry` before the first."""
    if beyond:
        carried = [carry, *beyond[:-1]]
    elif carry:
        carried = [carry] + [0] * (count - 1)
    else:
        return inside or [0] * count
    return list(map(add, inside, carried)) if inside else carried


class StepPattern:
    """Tells events to an account and a tracker, those of repeated rounds together."""

    def __init__(self, account: PhaseTimer, tracker: StepTracker, functions: list[bool]) -> None:
        """Take those that are told, and the compiled functions under way, which decide what their events mean."""
        self._account, self._tracker, self._functions = account, tracker, functions
        self._known: _Round | None = None
        self._wait = 0  # steps to tell before a round is learnt again
        self._ready = False  # account and tracker are in the state that the known round begins with

    def tell(self, events: list[Event], moments: list[int], *, whole: bool = True) -> int:
        """Tell events in order and return how many: all of them if `whole`, else but the beginning of a known round."""
        at = begin = 0  # `begin`: where the round before `at` began, 0 if it was not told one by one
        while at < len(events):
            count = self._tell_known(events, moments, at)
            if count:
                at, begin = at + count, 0
            elif self._ready and not whole and self._known and events[at:] == self._known.events[: len(events) - at]:
                break
            elif begin and not self._wait and events[at : 2 * at - begin] == events[begin:at]:
                self._learn(events[begin:at], moments[at : 2 * at - begin])
                at, begin = 2 * at - begin, at
            else:
                at, begin = self._tell_step(events, moments, at), at
        return at

    def _tell_step(self, events: list[Event], moments: list[int], at: int) -> int:
        """Tell events up to the one that reports a step; return the place after it."""
        account, tracker = self._account, self._tracker
        number, self._ready, self._wait = tracker.num_steps, False, max(0, self._wait - 1)
        for place in range(at, len(events)):
            account.moment = moments[place]
            events[place]()
            if tracker.num_steps != number:
                return place + 1
        return len(events)

    def _tell_known(self, events: list[Event], moments: list[int], at: int) -> int:
        """Tell the repetitions of the known round that begin here, if any; return the number of their events."""
        known, account, tracker = self._known, self._account, self._tracker
        count = known.repetitions(events, at) if known is not None else 0
        if known is None or count < _FEW or account.totals[EPOCH_GAP]:
            return 0
        if not self._ready and known.state != self._state():
            return 0
        size, told, self._ready = len(known.events), 0, True
        moments = moments[at : at + count * size]
        try:
            for step in known.steps(account, moments):
                told += 1
                tracker.num_steps += 1
                tracker.on_step(step)
        finally:
            if told:
                known.move(account, moments[: told * size])
        return count * size

    def _learn(self, events: list[Event], moments: list[int]) -> None:
        """Tell one round event by event; it is known from now on if columns give the same and its state came back."""
        account, before, state = self._account, self._account.copy(), self._state()
        slots, cut, self._ready, self._wait = [], -1, False, _PATIENCE
        with _noted(self._tracker) as made:
            for number, event in enumerate(events):
                slots.append(account.current)
                totals, account.moment = account.totals, moments[number]
                event()
                if account.totals is not totals:
                    cut = number
        if state is None or state != self._state() or cut < 0 or EPOCH_GAP in slots or len(made) != 1:
            return
        found = _Round(events, slots, cut, made[0], state)
        if list(found.steps(before, moments)) == made:
            self._known, self._ready = found, True

    def _state(self) -> object:
        """Return what decides what the next events mean, None where that is not known."""
        account, state = self._account, self._tracker.state
        return state and (state, account.current, *account.stack, tuple(self._functions))


@contextmanager
def _noted(tracker: StepTracker) -> Iterator[list[Any]]:
    """Note the steps and stretches that `tracker` reports meanwhile."""
    made: list[Any] = []
    receivers = tracker.on_step, tracker.on_outside

    def on_step(step: Step) -> None:
        made.append(step)
        receivers[0](step)

    def on_outside(stretch: Outside) -> None:
        made.append(stretch)
        receivers[1](stretch)

    tracker.on_step, tracker.on_outside = on_step, on_outside
    try:
        yield made
    finally:
        tracker.on_step, tracker.on_outside = receivers
