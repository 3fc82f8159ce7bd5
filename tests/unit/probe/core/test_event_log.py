"""The event log: events told later give the same account and the same steps as events told at once."""

import pytest
import torch
from tests.unit.probe.watched import LOSS, MS, STEP, Watch

from flatout.probe.core.event_log import EventLog
from flatout.probe.core.spans import OPTIMIZER
from flatout.schema.phase import STEP_PHASES, Phase


def train(w, num_steps):
    model = w.model()
    optimizer = w.sgd(model)
    for _ in range(2):
        for x in w.loader(num_steps):
            w.train_on(model, optimizer, x)
        with torch.no_grad():
            for x in w.loader(2):
                model(x)
    w.end()


@pytest.mark.parametrize("num_steps", [6, 60])
@pytest.mark.parametrize("interval_ms", [0, 50, 10**6])
@pytest.mark.few(3)
@pytest.mark.slow
def test_told_late_is_told_the_same(interval_ms, num_steps):
    seen = []
    for at_once in (True, False):
        with Watch() as w:
            w.event_log.interval_ns = interval_ms * MS
            if at_once:
                w.event_log.at_once()
                w.training.uninstall()
                w.seams.undo()
                w.training.install(w.seams)
                w.loading.install(w.seams)
            train(w, num_steps)
            seen.append((w.steps, w.outside))
    assert seen[0] == seen[1]
    assert len(seen[0][0]) == 2 * num_steps


def test_events_wait_no_longer_than_the_interval():
    event_log = EventLog([].append, [].append, clock=lambda: 0, interval_ns=20 * MS)
    told = []
    for moment in (0, 5 * MS, 19 * MS, 20 * MS, 21 * MS):
        event_log.record((lambda moment=moment: told.append(moment), moment))
        if moment >= event_log.due:
            event_log.replay()
    assert told == [0, 5 * MS, 19 * MS, 20 * MS]
    event_log.finish()
    assert told[-1] == 21 * MS


def test_a_failing_event_goes_to_the_trouble_and_not_into_the_training():
    event_log = EventLog([].append, [].append, clock=lambda: 0)
    errors = []
    event_log.tracker.trouble = errors.append
    event_log.record((lambda: 1 / 0, 0))
    event_log.replay()
    event_log.at_once()
    event_log.record((lambda: 1 / 0, 0))
    assert [type(error) for error in errors] == [ZeroDivisionError] * 2


def test_what_was_recorded_before_is_told_first():
    event_log = EventLog([].append, [].append, clock=lambda: 0)
    told = []
    late = event_log.record
    event_log.at_once()
    late((lambda: told.append("first"), 1))
    event_log.record((lambda: told.append("second"), 2))
    assert told == ["first", "second"]


def test_a_known_round_that_is_half_done_waits_for_its_end():
    steps = []
    event_log = EventLog(steps.append, [].append, clock=lambda: 10**6)
    events = event_log.events
    enter, begins, ends = events.enter[OPTIMIZER], events.optimizer_begins(1), events.optimizer_ends(1)
    loop = [events.backward_begins, events.backward_ends, enter, events.leave, begins, ends]
    for moment in range(600):
        event_log.record((loop[moment % 6], moment))
    event_log.replay()
    assert len(steps) == 98
    event_log.record((events.backward_begins, 600))
    event_log.replay()
    assert event_log.tracker.account.last == 598
    event_log.finish()
    assert event_log.tracker.account.last == 10**6
    assert [step.wall_ns for step in steps] == [6] * 99


def test_the_time_that_telling_each_step_takes_counts_where_it_is_spent(monkeypatch):
    with Watch() as w:
        rounds, tell = w.event_log._rounds, w.event_log._rounds.tell
        told = []

        def slowly(*events, **how):
            w.clock.spend(1)
            told.append(None)
            return tell(*events, **how)

        monkeypatch.setattr(rounds, "tell", slowly)
        model = w.model()
        optimizer = w.sgd(model)
        for x in w.loader(120):
            w.train_on(model, optimizer, x)
        monkeypatch.undo()
        w.end()
    later = w.steps[20:]
    spent = {phase: {step.phases_ns[place] for step in later} for place, phase in enumerate(STEP_PHASES)}
    assert len(told) > 10
    assert spent[Phase.HOST] == {LOSS * MS}  # what the script itself does between forward and backward pass
    whole = sum(step.wall_ns for step in later)
    assert whole > STEP * MS * len(later)
