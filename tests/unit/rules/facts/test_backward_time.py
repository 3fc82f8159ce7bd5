"""Shares of the step that parts of the backward pass take."""

import pytest

from flatout.rules.core.example import example, line
from flatout.rules.facts.backward_time import called_by_autograd, inside, share_of_lines, share_of_nodes, timed_nodes
from flatout.schema.backward import BackwardFacts
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame

HOOK, TRAIN = ("train.py", 12, "note"), ("train.py", 40, "train")


def seen(facts=None):
    lines = (
        line(0.5, HOOK, TRAIN, phase=Phase.BACKWARD),
        line(1.5, TRAIN, phase=Phase.BACKWARD),
        line(1.0, HOOK, TRAIN, phase=Phase.FORWARD),
    )
    causes = Causes(lines=lines, num_steps=10, phases_s={Phase.BACKWARD: 2.0}, backward=facts)
    return example(step_ms=100, forward=30, backward=40, causes=causes)


def test_sampled_lines_inside_a_function_are_a_share_of_their_phase():
    made = seen()
    lines = inside(made.run, Frame("train.py", 11, "note"))
    assert [cost.seconds for cost in lines] == [0.5]
    assert share_of_lines(made.run, made.breakdown, lines) == pytest.approx(0.1)


def test_nodes_are_a_share_of_the_timed_nodes():
    made = seen(BackwardFacts(steps=2, seconds=0.02))
    found = timed_nodes(made.run)
    assert share_of_nodes(found, made.breakdown, 0.005) == pytest.approx(0.1)


def test_without_timed_nodes_there_is_nothing_to_say():
    assert timed_nodes(seen().run) is None
    assert timed_nodes(seen(BackwardFacts(steps=2)).run) is None


def test_what_lies_around_a_function_that_autograd_calls_is_left_out():
    cost = line(1.0, ("train.py", 3, "inner"), HOOK, TRAIN)
    found = called_by_autograd(cost, [Frame("train.py", 11, "note")])
    assert found.stack == (Frame("train.py", 3, "inner"), Frame(*HOOK))
    assert called_by_autograd(cost, [Frame("other.py", 11, "note")]) is cost
