"""When a recording has seen enough of a training."""

from types import SimpleNamespace

import pytest

from flatout.probe.core.enough import LOOK_EVERY_NS, RecordedSpan, enough
from flatout.schema.order import Order
from flatout.schema.run import Step


def order(mode="timed", **named):
    return Order(mode=mode, folder="f", script="train.py", **named)


@pytest.mark.parametrize(
    ("mode", "steps", "elapsed_s", "epochs", "expected"),
    [
        ("timed", 24, 9.0, 1, True),
        ("timed", 23, 9.0, 3, False),  # long steps need number
        ("timed", 24, 8.9, 2, False),  # short ones time
        ("timed", 24, 5.0, 3, True),
        ("timed", 24, 4.9, 3, False),
        ("timed", 8, 36.0, 1, True),
        ("timed", 7, 36.0, 1, False),
        ("timed", 0, 60.0, 0, True),
        ("deep", 12, 6.0, 1, True),
        ("deep", 12, 3.5, 3, True),
        ("deep", 11, 6.0, 3, False),
        ("deep", 8, 24.0, 1, True),
        ("whole", 10**6, 10**6, 99, False),
    ],
)
def test_long_steps_need_number_and_short_ones_time(mode, steps, elapsed_s, epochs, expected):
    assert enough(order(mode), steps, elapsed_s, epochs) is expected


@pytest.mark.parametrize(
    ("mode", "steps", "elapsed_s", "expected"),
    [("deep", 39, 9.0, False), ("deep", 40, 9.0, True), ("deep", 12, 24.0, True), ("deep", 40, 3.0, False)],
)
def test_a_deep_run_goes_on_to_where_something_is_to_be_seen(mode, steps, elapsed_s, expected):
    assert enough(order(mode, least_steps=40), steps, elapsed_s, 1) is expected


def test_the_time_of_a_training_before_counts_for_the_whole_time_alone():
    assert not enough(order(max_s=20.0), 30, 4.0, 1, before_s=12.0)
    assert enough(order(max_s=20.0), 5, 8.0, 1, before_s=12.0)


@pytest.mark.parametrize(("steps", "expected"), [(10, False), (11, True)])
def test_a_number_that_was_asked_for_counts_past_the_first_step(steps, expected):
    assert enough(order(steps=10), steps, 0.1, 1) is expected


def step(end_s):
    return Step(start_ns=round(end_s * 1e9) - 1, wall_ns=1, phases_ns=())


def test_it_is_asked_every_20_ms_of_the_time_since_the_first_step():
    span = RecordedSpan(order(max_s=1.0))
    span.begin(Step(start_ns=10**9, wall_ns=5, phases_ns=()))
    tracker = SimpleNamespace(num_steps=3, passes=SimpleNamespace(epochs=1))
    assert not span.suffices(step(1.990), tracker)
    assert not span.suffices(step(2.001), tracker)  # enough by now, but just asked
    assert span.suffices(step(1.990 + LOOK_EVERY_NS / 1e9), tracker)


def test_a_number_of_steps_is_asked_for_each_time():
    span = RecordedSpan(order(steps=2))
    span.begin(step(0.0))
    tracker = SimpleNamespace(num_steps=2, passes=SimpleNamespace(epochs=1))
    assert not span.suffices(step(0.001), tracker)
    tracker.num_steps = 3
    assert span.suffices(step(0.002), tracker)
