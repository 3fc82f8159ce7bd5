"""Rounds: steps worked out together are the steps that events told one by one give, whatever the script does."""

import contextlib
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.probe.watched import MS

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.spans import CHECKPOINT, LEAD, OPTIMIZER, SYNC, TAIL
from flatout.probe.core.step_pattern import StepPattern
from flatout.schema.phase import Phase

PARTS = {  # what a body is made of: names of events, as `Script` knows them
    "forward": ["forward", "forward ends"],
    "forward without gradients": ["forward", "plain ends"],
    "acting": ["forward", "acting ends"],
    "compiled function": ["function", "function ends"],
    "function in a module": ["forward", "function", "function ends", "forward ends"],
    "backward": ["backward", "backward ends"],
    "backward with a wait": ["backward", "wait", "leave", "backward ends"],
    "first": ["first begins", "first ends"],
    "second": ["second begins", "second ends"],
    "step in a step": ["first begins", "optimizer", "leave to tail", "first ends"],
    "zero_grad": ["optimizer", "leave"],
    "wait": ["wait", "leave"],
    "save": ["checkpoint", "leave"],
    "save in a forward": ["forward", "checkpoint", "leave", "forward ends"],
    "loader begun": ["loader", "leave"],
    "left open": ["optimizer"],
    "left too often": ["leave"],
}
USUAL = ["forward", "backward", "first", "zero_grad"]
BODIES = st.just(USUAL) | st.permutations(USUAL) | st.lists(st.sampled_from(sorted(PARTS)), max_size=6)
LOOPS = st.tuples(st.sampled_from(["by hand", "loader", "no end", "old loader"]), BODIES, st.integers(0, 60))
ALONE = [["forward without gradients"] * number + USUAL for number in range(7)]
EVALUATED = st.lists(st.tuples(st.just("by hand"), st.sampled_from(ALONE), st.integers(1, 40)), min_size=2, max_size=8)
SCRIPTS = EVALUATED | st.lists(
    LOOPS | st.tuples(st.just("by hand"), st.just(USUAL), st.integers(30, 60)), min_size=1, max_size=6
)


class Broken(BaseException):
    """Ends a script, as `StopRecording` does."""


class Script:
    """A training whose events are recorded on a tape of its own; its moments are drawn from a seed."""

    def __init__(self, seed=0, most_ns=40 * MS, on_step=None, interval_ms=0):
        self.random = random.Random(seed)
        self.most_ns = most_ns
        self.clock = 1
        self.steps, self.outside, self.errors = [], [], []
        self.on_step = on_step
        self.event_log = event_log = EventLog(
            self.step, self.outside.append, clock=lambda: self.clock, interval_ns=interval_ms * MS
        )
        event_log.tracker.trouble = self.errors.append
        events = event_log.events
        self.events = {
            "forward": events.forward.begins,
            "forward ends": events.forward.ends,
            "plain ends": events.forward.plain_ends,
            "acting ends": events.forward.acting_ends,
            "function": events.forward.function_begins,
            "function ends": events.forward.function_ends,
            "backward": events.backward_begins,
            "backward ends": events.backward_ends,
            "first begins": events.optimizer_begins(1),
            "first ends": events.optimizer_ends(1),
            "second begins": events.optimizer_begins(2),
            "second ends": events.optimizer_ends(2),
            "optimizer": events.enter[OPTIMIZER],
            "wait": events.enter[SYNC],
            "save": events.enter[CHECKPOINT],
            "checkpoint": events.checkpoint_from_host,
            "leave": events.leave,
            "leave to lead": events.leave_to[LEAD],
            "leave to tail": events.leave_to[TAIL],
            "loader": events.loader_begins,
        }

    def step(self, step):
        self.steps.append((step, self.event_log.tracker.num_steps, self.event_log.tracker.passes.epochs))
        if self.on_step is not None:
            self.on_step(len(self.steps))

    def record(self, event):
        self.clock += self.random.randrange(self.most_ns)
        self.event_log.record((event, self.clock))
        if self.clock >= self.event_log.due:
            self.event_log.replay()

    def loop(self, kind, body, times, serial):
        source = self.event_log.events.asked(serial)
        if kind != "by hand":
            self.play(["loader", "leave"])
        for _ in range(times):
            if kind != "by hand":
                self.record(self.event_log.events.asked(serial) if kind == "old loader" else source)
                self.play(["leave to lead"])
            for part in body:
                self.play(PARTS[part])
        if kind == "loader":
            self.record(source)
            self.play(["leave"])
            self.record(self.event_log.events.exhausted(serial))

    def play(self, names):
        for name in names:
            self.record(self.events[name])

    def run(self, loops):
        for serial, (kind, body, times) in enumerate(loops):
            self.loop(kind, body, times, serial)
        self.event_log.finish()
        return self

    def result(self):
        account = self.event_log.tracker.account
        where = account.current, account.stack, account.last, account.start, account.totals
        return self.steps, self.outside, [str(error) for error in self.errors], where, self.event_log.tracker.state


@settings(max_examples=examples(60), deadline=None)
@given(SCRIPTS, st.integers(0, 2**32), st.sampled_from([2, 1000, 40 * MS]), st.sampled_from([0, 50, 5_000, 10**9]))
def test_rounds_told_together_give_what_events_told_at_once_give(loops, seed, most_ns, interval_ms):
    at_once, late = (Script(seed, most_ns, interval_ms=interval_ms) for _ in range(2))
    at_once.event_log.at_once()
    assert late.run(loops).result() == at_once.run(loops).result()


@settings(max_examples=examples(30), deadline=None)
@given(SCRIPTS, st.integers(1, 150), st.sampled_from([300, 5_000, 10**9]))
def test_a_receiver_that_ends_the_script_has_seen_the_same(loops, last, interval_ms):
    def on_step(number):
        if number >= last:
            raise Broken

    def seen(script):
        with contextlib.suppress(Broken):
            script.run(loops)
        return script.steps, script.outside, script.errors

    at_once, late = (Script(on_step=on_step, interval_ms=interval_ms) for _ in range(2))
    at_once.event_log.at_once()
    assert seen(late) == seen(at_once)


@pytest.mark.parametrize("kind", ["by hand", "loader"])
def test_a_receiver_that_fails_has_seen_the_same_and_the_account_goes_on_there(kind):
    def on_step(number):
        if number == 70:
            raise ValueError("no room")

    script = Script(on_step=on_step, interval_ms=10**9)
    for _ in range(2):
        script.loop(kind, USUAL, 50, serial=1)
    script.event_log.replay()
    assert [number for _, number, _ in script.steps] == list(range(1, 71))
    assert [str(error) for error in script.errors] == ["no room"]
    last, account = script.steps[-1][0], script.event_log.tracker.account
    assert account.start == last.start_ns + last.wall_ns
    assert sum(account.totals) == account.last - account.start


@pytest.mark.parametrize("kind", ["by hand", "loader"])
def test_events_of_repeated_rounds_are_not_told_one_by_one(kind):
    script = Script(interval_ms=1000)
    told = itertools.count()
    ends = script.events["backward ends"]
    script.events["backward ends"] = lambda: (next(told), ends())
    script.run([(kind, USUAL, 300)])
    assert len(script.steps) >= 298
    assert next(told) < 100


@pytest.mark.parametrize(
    "between",
    [
        *(("by hand", [part, *USUAL], 1) for part in PARTS),
        ("by hand", ["forward without gradients"] * 5, 1),
        ("by hand", ["forward"] * 5, 4),
        ("loader", USUAL, 3),
        ("loader", ["forward"], 3),
        ("no end", ["forward"], 3),
    ],
)
def test_rounds_that_are_interrupted_are_taken_up_again(between):
    late, at_once = Script(interval_ms=8000), Script()
    at_once.event_log.at_once()
    told = itertools.count()
    zero_grad = late.events["optimizer"]
    late.events["optimizer"] = lambda: (next(told), zero_grad())
    loops = [("by hand", USUAL, 100), between] * 5
    assert late.run(loops).result() == at_once.run(loops).result()
    assert next(told) < 200


def test_steps_told_together_count_as_recent_ones():
    loops = [("by hand", ALONE[number], times) for number, times in ((0, 20), (1, 5), (4, 1), (0, 3))]
    late, at_once = Script(interval_ms=10**9), Script()
    at_once.event_log.at_once()
    assert late.run(loops).result() == at_once.run(loops).result()
    assert [stretch.phase for stretch in late.outside[:4]] == [Phase.VALIDATION] * 4


def test_an_optimizer_that_comes_late_changes_what_a_backward_pass_alone_means():
    late, at_once = Script(interval_ms=10**9), Script()
    at_once.event_log.at_once()
    for script in (late, at_once):
        script.loop("by hand", ["forward", "backward"], 100, serial=0)
        script.event_log.replay()
        script.event_log.tracker.optimizers.number = 1
        script.run([("by hand", ["forward", "backward"], 600)])
    assert late.result() == at_once.result()


def test_rounds_that_report_nothing_are_told_all_the_same():
    event_log = EventLog([].append, [].append, clock=lambda: 0)
    told = []
    events = [lambda: told.append("a"), lambda: told.append("b")] * 50
    StepPattern(event_log.tracker.account, event_log.tracker, []).tell(events, list(range(100)))
    assert told == ["a", "b"] * 50
