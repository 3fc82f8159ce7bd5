"""What looked like validation is called a rollout where its inputs come back, in all of a recording."""

from dataclasses import replace

import pytest

from flatout.analysis.breakdown import account
from flatout.analysis.rollouts import acts_in_many_environments, collects, with_rollouts
from flatout.rules.core.example import example, line, steps_of
from flatout.rules.core.find import find
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Collected, Header, LoaderFacts, Run

ACTING = line(1.0, ("ppo.py", 33, "act"), phase=Phase.VALIDATION)
FOUND = Collected(calls=900, rows=900, checked=1000, matched=990, steps=100, steps_with_calls=3)


def recorded(found=FOUND):
    causes = Causes(collected=found, lines=(ACTING,), num_steps=100)
    return example(step_ms=50, n=100, forward=40, outside_s={Phase.VALIDATION: 4.0}, causes=causes).run


def test_the_whole_recording_speaks_of_rollouts():
    run = with_rollouts(recorded())
    breakdown = account(run)
    assert breakdown.outside_s(Phase.VALIDATION) == 0
    assert breakdown.outside_s(Phase.ROLLOUT) == pytest.approx(4.0)
    codes = [finding.code for finding in find(run, breakdown)]
    assert "EP007" in codes
    assert not {"EP001", "EP002"} & set(codes)
    assert next(each for each in find(run, breakdown) if each.code == "EP007").location.line == 33


@pytest.mark.parametrize(
    "found",
    [
        None,
        replace(FOUND, matched=5, checked=8),  # too few to say
        replace(FOUND, matched=100),  # some rows occur in both sets
        replace(FOUND, steps_with_calls=80),  # a teacher
    ],
)
def test_a_validation_stays_one(found):
    run = recorded(found)
    assert not collects(run)
    assert with_rollouts(run) == run


def test_without_a_loader_time_between_epochs_is_rollouts_too():
    gap = example(step_ms=50, n=100, forward=40, outside_s={Phase.EPOCH_GAP: 4.0}, causes=Causes(collected=FOUND)).run
    assert account(with_rollouts(gap)).outside_s(Phase.ROLLOUT) == pytest.approx(4.0)
    loads = replace(gap, loaders=(LoaderFacts(is_training=True),))
    assert account(with_rollouts(loads)).outside_s(Phase.EPOCH_GAP) == pytest.approx(4.0)


def test_time_inside_steps_is_moved_to_rollouts_as_well():
    parts = [{Phase.HOST: 400.0 if number % 10 == 5 else 10.0, Phase.FORWARD: 20.0} for number in range(60)]
    steps = steps_of(parts, forward_without_grad=[number % 10 == 5 for number in range(60)])
    run = example(steps=steps, causes=Causes(collected=FOUND)).run
    assert account(run).outside_s(Phase.ROLLOUT) == pytest.approx(6 * 0.39, rel=0.05)


@pytest.mark.parametrize(
    ("calls", "rows", "matched", "expected"),
    [(800, 51200, 4000, True), (800, 800, 4000, False), (100, 6400, 4000, False), (800, 51200, 0, False)],
)
def test_steps_that_act_in_many_environments_are_told(calls, rows, matched, expected):
    """Not those of one environment, with a teacher that is called once, or whose rows never come back."""
    found = Collected(calls=calls, rows=rows, checked=4000, matched=matched, steps=100, steps_with_calls=100)
    run = Run(header=Header(script="a2c.py"), causes=Causes(collected=found))
    assert acts_in_many_environments(run) == expected
