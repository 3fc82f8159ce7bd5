"""The window of a live view: its sums are those of the steps of the last seconds, and it stays small."""

import pytest

from flatout.probe.core.recent_steps import Window
from flatout.schema.live import RankNow
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Outside, Step

MS = 1_000_000


def step(start_ms, wall_ms=10, *, input_ms=6, epoch=0, batches=1):
    phases = [0] * len(STEP_PHASES)
    phases[STEP_PHASES.index(Phase.INPUT)] = input_ms * MS
    phases[STEP_PHASES.index(Phase.FORWARD)] = (wall_ms - input_ms) * MS
    return Step(start_ms * MS, wall_ms * MS, tuple(phases), batches, epoch, False, False, (0, 0, 0), ())


def steps(number, start_ms=0, wall_ms=10, **more):
    return [step(start_ms + each * wall_ms, wall_ms, **more) for each in range(number)]


def now(window):
    return RankNow(**window.fields())


def test_before_the_first_step_nothing_is_said():
    window = Window()
    window.add([], [Outside(phase=Phase.VALIDATION, start_ns=0, wall_ns=MS)])
    assert now(window) == RankNow()


def test_rate_mean_and_shares_are_those_of_the_steps():
    window = Window()
    window.add(steps(30), [])
    window.add(steps(20, start_ms=300), [])
    found = now(window)
    assert (found.steps, found.recent_steps) == (50, 50)
    assert found.step_ms == pytest.approx(10)
    assert found.steps_per_s == pytest.approx(100)
    assert found.phases_ms == pytest.approx({"input": 6.0, "forward": 4.0})
    assert sum(found.phases_ms.values()) == pytest.approx(found.step_ms)


def test_what_lies_between_steps_slows_the_rate_and_not_the_step():
    window = Window()
    window.add(steps(10), [])
    window.add(
        steps(10, start_ms=400), [Outside(phase=Phase.VALIDATION, start_ns=100 * MS, wall_ns=300 * MS, num_batches=3)]
    )
    found = now(window)
    assert found.outside_s == pytest.approx({"validation": 0.3})
    assert found.span_s == pytest.approx(0.5)
    assert found.steps_per_s == pytest.approx(40)
    assert found.step_ms == pytest.approx(10)


def test_stretches_without_a_step_lengthen_what_was_before_them():
    window = Window()
    window.add(steps(10), [])
    for start in (100, 200):
        window.add([], [Outside(phase=Phase.VALIDATION, start_ns=start * MS, wall_ns=100 * MS)])
    found = now(window)
    assert found.outside_s == pytest.approx({"validation": 0.2})
    assert found.span_s == pytest.approx(0.3)


def test_only_the_last_seconds_count_and_the_sums_of_all_are_kept():
    window = Window(seconds=5.0)
    for second in range(20):
        slow = second < 10
        window.add(steps(100, start_ms=second * 1000, input_ms=9 if slow else 2), [])
    found = now(window)
    assert found.phases_ms == pytest.approx({"input": 2.0, "forward": 8.0})
    assert 5.0 <= found.span_s <= 7.0
    assert found.steps == 2000
    assert found.step_s == pytest.approx({"input": 11.0, "forward": 9.0})


def test_of_long_steps_the_last_few_count_however_long_ago():
    window = Window(seconds=5.0, fewest=8)
    for number in range(50):
        window.add([step(number * 20_000, 20_000)], [])
    found = now(window)
    assert found.recent_steps == 8
    assert found.step_ms == pytest.approx(20_000)


def test_it_stays_small_however_long_the_training():
    window = Window(seconds=5.0)
    for number in range(5000):
        window.add(steps(3, start_ms=number * 500, wall_ms=100), [])
        window.add([], [Outside(phase=Phase.OTHER, start_ns=number * 500 * MS + 300 * MS, wall_ns=200 * MS)])
        assert len(window._buckets) <= 12
    assert now(window).outside_s == pytest.approx({"other": len(window._buckets) * 0.2})


def test_an_epoch_counts_its_batches_accumulated_ones_too():
    window = Window()
    window.add(steps(10, epoch=0, batches=4), [])
    window.add([*steps(3, start_ms=100, epoch=0, batches=4), *steps(5, start_ms=130, epoch=1, batches=4)], [])
    found = now(window)
    assert (found.epoch, found.batches) == (2, 20)
    assert found.batches_per_step == pytest.approx(4)


def test_the_time_to_the_end_of_the_epoch_is_that_of_its_steps():
    known = {"step_ms": 20.0, "epoch": 1, "epoch_batches": 100}
    assert RankNow(**known, batches=40).epoch_left_s == pytest.approx(1.2)
    assert RankNow(**known, batches=40, batches_per_step=4.0).epoch_left_s == pytest.approx(0.3)
    assert RankNow(**known, batches=100).epoch_left_s == 0
    assert RankNow(**known, batches=101).epoch_left_s is None
    assert RankNow(step_ms=20.0, batches=3).epoch_left_s is None
