"""Growth is told from noise, stalls and warm-up."""

import random

import pytest

from flatout.rules.core.example import steps_of
from flatout.rules.facts.growth import factor_of, growth
from flatout.schema.phase import Phase


def series(values, **detail):
    return steps_of([{Phase.HOST: value} for value in values], **detail)


def test_a_steady_rise_is_growth_over_the_run():
    found = growth(series([10 + i for i in range(60)]), Phase.HOST)
    assert not found.every_epoch
    assert found.factor > 1.5
    assert found.extra_ms == pytest.approx(29.5, abs=2)  # above the first step


def test_a_cost_that_starts_again_with_each_epoch_is_growth_within_it():
    values = [5 + i % 30 for i in range(120)]
    found = growth(series(values, epoch=[i // 30 for i in range(120)]), Phase.HOST)
    assert found.every_epoch
    assert found.n == 120


def test_a_cost_that_falls_back_regularly_tells_the_epochs_of_a_script_without_a_loader():
    chance = random.Random(0)
    values = [chance.uniform(0.9, 1.1) * (1 + i % 100) for i in range(40, 1000)]
    found = growth(series(values), Phase.HOST)
    assert found.every_epoch
    assert found.starts[:3] == (0, 60, 160)
    assert found.extra_ms == pytest.approx(49.5, rel=0.1)
    steps = steps_of([{Phase.HOST: value, Phase.FORWARD: 3 * value} for value in values])
    assert factor_of(steps, [Phase.FORWARD], starts=found.starts) == pytest.approx(5, rel=0.1)


def test_a_cost_that_falls_back_now_and_then_is_no_growth():
    chance = random.Random(0)
    for _ in range(20):
        lengths = [chance.randint(8, 200) for _ in range(12)]
        values = [float(1 + i) for length in lengths for i in range(length)]
        assert growth(series(values), Phase.HOST) is None


def test_two_levels_in_turn_are_no_growth_within_epochs():
    assert growth(series([10.0 if i // 40 % 2 else 20.0 for i in range(800)]), Phase.HOST) is None


def test_of_a_step_up_only_what_lies_above_the_first_level_is_growth():
    assert growth(series([10.0] * 50 + [20.0] * 50), Phase.HOST).extra_ms == pytest.approx(5)


def test_stalls_at_regular_distances_are_no_growth():
    assert growth(series([5.0 if i % 40 else 50.0 for i in range(400)]), Phase.HOST) is None


def test_a_rise_of_less_than_half_is_none():
    assert growth(series([100 + 0.5 * i for i in range(60)]), Phase.HOST) is None


def test_noise_of_forty_percent_is_no_growth():
    chance = random.Random(0)
    for _ in range(50):
        assert growth(series([10 * chance.uniform(0.6, 1.4) for _ in range(90)]), Phase.HOST) is None


def test_a_few_stalls_at_the_end_are_no_growth():
    assert growth(series([10] * 50 + [500] * 8), Phase.HOST) is None


def test_falling_costs_and_short_runs_are_no_growth():
    assert growth(series([100 - i for i in range(60)]), Phase.HOST) is None
    assert growth(series([1, 2, 4, 8, 16] * 4), Phase.HOST) is None
    assert growth((), Phase.HOST) is None


def test_another_phase_does_not_count():
    assert growth(series([10 + i for i in range(60)]), Phase.FORWARD) is None


def test_growth_from_nothing_has_a_finite_factor():
    assert growth(series([0.0] * 20 + [1.0] * 20 + [2.0] * 20), Phase.HOST).factor == 1000


def test_the_factor_of_several_phases_is_that_of_their_sum():
    steps = steps_of([{Phase.FORWARD: 1 + i / 10, Phase.BACKWARD: 9} for i in range(60)])
    assert factor_of(steps, [Phase.FORWARD]) == pytest.approx(5.95 / 1.95)
    assert factor_of(steps, [Phase.FORWARD, Phase.BACKWARD]) == pytest.approx(14.95 / 10.95)
    assert factor_of(steps, [Phase.HOST]) == 1
