"""Statistics of step times."""

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.analysis.statistics import mad, median, quantile, robust_cv, steady_start, theil_sen_slope

walls = st.floats(min_value=0, max_value=1e12, allow_nan=False)


def noise(count, seed=0, middle=100.0, cv=0.03):
    generator = random.Random(seed)
    return [middle * (1 + generator.gauss(0, cv)) for _ in range(count)]


@given(st.lists(walls, min_size=1))
def test_the_median_is_the_standard_library_s(values):
    assert median(values) == pytest.approx(statistics.median(values))


@given(st.lists(walls, min_size=2), st.integers(1, 99))
def test_quantiles_follow_definition_seven(values, percent):
    expected = statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
    assert quantile(values, percent / 100) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(walls, min_size=1), st.floats(0, 1))
def test_a_quantile_lies_between_the_extremes(values, share):
    slack = max(values) * 1e-12
    assert min(values) - slack <= quantile(values, share) <= max(values) + slack


def test_the_extreme_quantiles_are_the_extremes():
    assert quantile([3, 1, 2], 0) == 1
    assert quantile([3, 1, 2], 1) == 3


@pytest.mark.parametrize("wrong", [[], [1.0]])
def test_impossible_quantiles_are_refused(wrong):
    with pytest.raises(ValueError, match="quantile"):
        quantile(wrong, 1.5 if wrong else 0.5)


def test_one_wild_value_moves_neither_place_nor_width():
    assert mad([1, 2, 3, 4, 1000]) == 1
    assert median([1, 2, 3, 4, 1000]) == 3


def test_the_robust_spread_estimates_the_standard_deviation():
    assert robust_cv(noise(5000)) == pytest.approx(0.03, rel=0.1)


def test_the_spread_of_zeros_is_zero():
    assert robust_cv([0, 0, 0]) == 0


@pytest.mark.parametrize("count", [2, 3, 50, 199, 200, 201, 5000])
def test_the_slope_of_a_line_is_found_at_every_length(count):
    assert theil_sen_slope([5 + 0.25 * i for i in range(count)]) == pytest.approx(0.25)


def test_a_quarter_of_wild_values_does_not_bend_the_slope():
    values = [2.0 * i if i % 4 else 1e6 for i in range(150)]
    assert theil_sen_slope(values) == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("values", [[], [7.0]])
def test_fewer_than_two_values_have_no_slope(values):
    assert theil_sen_slope(values) == 0


@given(st.lists(walls))
def test_never_more_than_half_is_warm_up(values):
    assert 0 <= steady_start(values) <= len(values) // 2


@given(walls, st.integers(0, 200))
def test_equal_steps_have_no_warm_up(wall, count):
    assert steady_start([wall] * count) == 0


@pytest.mark.parametrize("count", [30, 100, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_noise_has_next_to_no_warm_up(count, seed):
    assert steady_start(noise(count, seed)) <= count // 10


@pytest.mark.parametrize("count", [2, 3, 5, 10, 100, 1000])
def test_one_slow_first_step_is_found_at_every_length(count):
    assert 1 <= steady_start([5000.0, *noise(count - 1)]) <= 1 + count // 10


@pytest.mark.parametrize("seed", range(5))
def test_a_second_compilation_is_part_of_the_warm_up(seed):
    start = steady_start([5000.0, 101.0, 4000.0, *noise(97, seed)])
    assert 3 <= start <= 12


@pytest.mark.parametrize("seed", range(5))
def test_a_cold_cache_that_lasts_forty_steps_of_a_hundred_is_found(seed):
    assert 39 <= steady_start(noise(40, seed, middle=150.0) + noise(60, seed + 100)) <= 45


def test_warm_up_up_to_the_very_half_is_found():
    assert steady_start([5000.0] * 5 + [100.0] * 5) == 5


@pytest.mark.parametrize("seed", range(5))
def test_the_first_steps_that_live_on_batches_fetched_ahead_are_left_out(seed):
    assert 5 <= steady_start([3000.0, *noise(4, seed, middle=40.0), *noise(95, seed + 100)]) <= 30


def test_a_series_that_only_grows_has_no_steady_part_and_loses_nothing():
    assert steady_start([100.0 + i for i in range(100)]) == 0


@pytest.mark.parametrize("position", [5, 20, 45, 70])
def test_a_stall_in_mid_run_is_no_warm_up(position):
    values = noise(100)
    values[position] = 3000.0
    assert steady_start(values) <= 2


def test_bursts_of_workers_are_a_rhythm_and_no_warm_up():
    assert steady_start([300.0 if i % 4 == 0 else 5.0 for i in range(100)]) <= 1


def test_a_hundred_thousand_steps_are_no_work():
    assert steady_start([9000.0, *noise(100_000)]) == 1
