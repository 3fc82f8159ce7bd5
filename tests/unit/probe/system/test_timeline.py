"""A few steps as they ran: the pieces of the training thread are those whose sums the account has."""

from itertools import pairwise

import pytest
import torch
from tests.unit.probe.watched import BACKWARD, FORWARD, INPUT, LOSS, MS, OPTIMIZER, STEP, Watch

from flatout.probe.core.step_tracker import Activity, activity_of
from flatout.probe.system import timeline as timelines
from flatout.probe.system.line_sampler import where
from flatout.probe.system.timeline import MAIN, READING, STEPS, Timeline, fetched
from flatout.schema.phase import STEP_PHASES
from flatout.schema.run import Step


def drawn(num_steps, *, epochs=1, end_after=0, validate=False):
    """Return the steps and the timeline of a training under the real probes and a scripted clock."""
    with Watch() as w:
        timeline = Timeline(lambda: where(w.account.current, activity_of(w.tracker) is Activity.BETWEEN_EPOCHS)[0])

        def step(one):
            w.steps.append(one)
            timeline.step(one, len(w.steps))
            if len(w.steps) == end_after:
                timeline.end(one.start_ns + one.wall_ns)

        w.tracker.on_step = step
        w.event_log.on_change = timeline.changed
        w.event_log.at_once()
        w.training.uninstall()
        w.seams.undo()
        w.training.install(w.seams)
        w.loading.install(w.seams)
        model = w.model()
        optimizer = w.sgd(model)
        for _ in range(epochs):
            for x in w.loader(num_steps):
                w.train_on(model, optimizer, x)
            if validate:
                with torch.no_grad():
                    for x in w.loader(3):
                        model(x)
        w.end()
    return w.steps, timeline.spans()


@pytest.mark.parametrize("num_steps", [1, 3, 8, 30, 60])
@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.slow
def test_pieces_of_a_step_add_up_to_its_phases(num_steps, validate):
    steps, spans = drawn(num_steps, epochs=2, validate=validate)
    shown = {span.start_ns: span for span in spans if span.lane == STEPS}
    assert 1 <= len(shown) <= 8
    main = [span for span in spans if span.lane == MAIN]
    for one, following in pairwise(main):
        assert one.start_ns + one.wall_ns == following.start_ns and one.name != following.name
    of_shown = [step for step in steps if step.start_ns in shown]
    assert len(of_shown) == len(shown)
    for step in of_shown:
        assert shown[step.start_ns].wall_ns == step.wall_ns == STEP * MS
        inside = dict.fromkeys(STEP_PHASES, 0)
        for span in main:
            begin = max(span.start_ns, step.start_ns)
            end = min(span.start_ns + span.wall_ns, step.start_ns + step.wall_ns)
            if end > begin:
                inside[span.name] += end - begin
        assert tuple(inside.values()) == step.phases_ns


def test_pieces_stand_in_the_order_in_which_they_ran():
    steps, spans = drawn(5)
    last = [(one.name, one.wall_ns // MS) for one in spans if one.lane == MAIN and one.start_ns >= steps[-1].start_ns]
    wanted = {"input": INPUT, "forward": FORWARD, "host": LOSS, "backward": BACKWARD, "optimizer": OPTIMIZER}
    assert last == list(wanted.items())


def test_the_last_steps_of_the_first_forty_are_drawn():
    steps, spans = drawn(60)
    assert [span.name for span in spans if span.lane == STEPS] == [f"step {number}" for number in range(32, 40)]
    assert max(span.start_ns + span.wall_ns for span in spans) == steps[39].start_ns + steps[39].wall_ns


def test_nothing_is_taken_once_it_has_ended():
    steps, spans = drawn(30, end_after=5)
    assert [span.name for span in spans if span.lane == STEPS] == [f"step {number}" for number in range(5)]
    assert max(span.start_ns + span.wall_ns for span in spans) == steps[4].start_ns + steps[4].wall_ns


def test_steps_of_many_pieces_are_fewer(monkeypatch):
    monkeypatch.setattr(timelines, "_MOST_SPANS", 20)
    _, spans = drawn(30)
    assert 1 <= sum(span.lane == STEPS for span in spans) <= 5
    assert sum(span.lane == MAIN for span in spans) <= 30


def test_a_script_that_is_ended_with_a_step_has_all_of_it():
    timeline = Timeline(lambda: phases.pop(0))
    phases = ["input", "forward"]
    timeline.changed(0)
    timeline.changed(30)
    timeline.step(Step(start_ns=0, wall_ns=100, phases_ns=()), 1)
    assert [(one.name, one.start_ns, one.wall_ns) for one in timeline.spans() if one.lane == MAIN] == [
        ("input", 0, 30),
        ("forward", 30, 70),
    ]


def test_a_training_without_a_step_draws_nothing():
    assert Timeline(lambda: "host").spans() == ()


def test_a_batch_that_was_fetched_is_read_and_collated():
    spans = list(fetched(READING, [(5, 9, 12), (20, 30, 30)]))
    assert [(span.name, span.start_ns, span.wall_ns) for span in spans] == [
        ("sample", 5, 4),
        ("collate", 9, 3),
        ("sample", 20, 10),
    ]
