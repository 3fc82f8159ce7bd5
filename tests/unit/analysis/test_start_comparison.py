"""Two versions that took turns: a start counts once, and what the starts scatter makes the interval."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.analysis.test_difference import finding, recording

from flatout.analysis.difference import difference, judge_limit
from flatout.analysis.start_comparison import FEWEST_STARTS, Start, of_starts
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.trial import Pair

FORWARD = STEP_PHASES.index(Phase.FORWARD)
DESCRIBED = difference([recording(10)], [recording(10, findings=(finding(),))])


def starts(ratio, *, number=6, pairs=14, between=0.005, within=0.05, seed=0, step_ms=10.0):
    """Return starts whose ratio scatters by `between` from one to the next, and whose pairs scatter by `within`."""
    chance = random.Random(seed)
    made = []
    for _ in range(number):
        own = ratio * math.exp(chance.gauss(0, between))
        machine = [step_ms * math.exp(chance.gauss(0, 0.3)) for _ in range(pairs)]
        blocks = [Pair(ms, ms * own * math.exp(chance.gauss(0, within))) for ms in machine]
        phases = [
            (side, one_phase(ms)) for pair in blocks for side, ms in enumerate((pair.baseline_ms, pair.candidate_ms))
        ]
        made.append(Start(tuple(blocks), tuple(phases)))
    return made


def one_phase(ms):
    return tuple(ms if place == FORWARD else 0.0 for place in range(len(STEP_PHASES)))


def test_what_takes_a_tenth_longer_is_told_however_much_the_machine_wavers():
    found = of_starts(DESCRIBED, starts(1.1, number=12))
    assert found.low < 1.1 < found.high
    assert found.high - found.low < 0.06
    assert (found.num_starts, found.num_pairs) == (12, 168)
    assert judge_limit(found, 0.01).passed is False
    assert found.after_ms / found.before_ms == pytest.approx(found.ratio)


def test_the_phase_that_takes_longer_is_named_with_its_interval():
    (change,) = of_starts(DESCRIBED, starts(1.2, within=0.01)).phases
    assert change.name == "forward"
    assert change.low_ms <= change.ms <= change.high_ms
    assert change.low_ms > 0


def test_what_the_recordings_say_of_findings_is_kept():
    assert [each.code for each in of_starts(DESCRIBED, starts(1.0)).came] == ["IN003"]


def test_scatter_from_start_to_start_is_not_made_smaller_by_more_pairs():
    few, many = (of_starts(DESCRIBED, starts(1.0, pairs=pairs, between=0.05, within=0.01)) for pairs in (8, 80))
    assert many.noise == pytest.approx(few.noise, rel=0.5)
    assert many.high - many.low > 0.05


def test_times_are_of_equal_samples():
    described = difference([recording(10, samples=64)], [recording(20, samples=128)])
    found = of_starts(described, starts(2.0, within=0.01, between=0.002))
    assert found.ratio == pytest.approx(1.0, abs=0.02)
    assert found.phases[0].after_ms == pytest.approx(found.phases[0].before_ms, rel=0.05)


def test_every_look_is_paid_for():
    once, twice = (of_starts(DESCRIBED, starts(1.01), looks=looks) for looks in (1, 2))
    assert twice.chance == pytest.approx(min(1.0, 2 * once.chance))
    assert (once.low, once.high) == (twice.low, twice.high)


@pytest.mark.parametrize("number", range(FEWEST_STARTS))
def test_from_fewer_than_three_starts_nothing_is_said(number):
    with pytest.raises(ValueError, match="say nothing"):
        of_starts(DESCRIBED, starts(1.0, number=number))


def test_a_start_without_a_pair_is_refused():
    with pytest.raises(ValueError, match="say nothing"):
        of_starts(DESCRIBED, [*starts(1.0), Start(())])


@pytest.mark.slow
def test_equal_programs_are_called_slower_in_one_of_a_hundred_comparisons_at_most():
    red = 0
    for seed in range(600):
        found = of_starts(DESCRIBED, starts(1.0, number=12, between=0.02, seed=seed), looks=2)
        red += judge_limit(found, 0.01).passed is False
    assert red <= 12  # 1 % are 6; so many or more in 0.9 % of such simulations


@given(st.integers(FEWEST_STARTS, 9), st.floats(0.5, 2.0), st.floats(0, 0.2), st.integers(0, 1000))
def test_the_interval_holds_the_estimate_and_is_finite(number, ratio, between, seed):
    found = of_starts(DESCRIBED, starts(ratio, number=number, pairs=3, between=between, seed=seed))
    assert 0 < found.low <= found.ratio <= found.high < math.inf
    assert 0 <= found.chance <= 1
