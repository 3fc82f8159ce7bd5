"""Stages from ceilings."""

import math

import pytest

from flatout.analysis.headroom_stages import HOLDING, gain_between, left_between, stairs
from flatout.schema.facts import HELD_FIXED, HELD_INPUT, HELD_RAW, HELD_SAMPLES, HELD_TRANSFER, LOADER_ALONE, Ceiling


def held(name, speedup, low=0.0, high=0.0):
    return Ceiling(ceiling=name, median_ms=1.0, speedup=speedup, low=low, high=high, num_pairs=8)


def test_a_stage_is_what_has_gone_since_the_place_before():
    found = stairs([held(LOADER_ALONE, 3.0), held(HELD_INPUT, 10.0), held(HELD_RAW, 1.25), held(HELD_SAMPLES, 4.0)])
    assert [each.stage for each in found] == ["reading", "transforms", "collate and sampler"]
    assert [each.share for each in found] == pytest.approx([0.2, 0.55, 0.15])


def test_a_batch_that_a_worker_made_must_be_handed_over_too():
    found = stairs([held(HELD_INPUT, 10.0), held(HELD_SAMPLES, 4.0)], workers=True)
    assert [each.stage for each in found] == ["making samples", "the rest of the input"]


def test_every_pair_of_neighbours_has_a_name():
    for missing in (HELD_RAW, HELD_FIXED, HELD_SAMPLES, HELD_INPUT, HELD_TRANSFER):
        names = [each for each in (HELD_RAW, HELD_FIXED, HELD_SAMPLES, HELD_INPUT, HELD_TRANSFER) if each != missing]
        assert all(stair.stage for stair in stairs([held(name, 2.0 + place) for place, name in enumerate(names)]))


def test_what_seems_to_take_less_than_nothing_takes_nothing():
    found = stairs([held(HELD_SAMPLES, 2.0, 1.9, 2.1), held(HELD_INPUT, 1.9, 1.8, 2.0)])
    assert (found[1].share, found[1].low) == (0.0, 0.0)
    assert 0 < found[1].high < 0.1


def test_places_that_contradict_each_other_say_nothing_of_what_lies_between():
    inverted = [held(HELD_SAMPLES, 1.33, 1.17, 1.5), held(HELD_INPUT, 1.11, 1.02, 1.21)]
    assert gain_between(inverted, HELD_SAMPLES, HELD_INPUT) is None
    assert gain_between(inverted, "", HELD_INPUT).speedup == 1.11
    alike = [held(HELD_SAMPLES, 1.33, 1.30, 1.36), held(HELD_INPUT, 1.32, 1.29, 1.35)]
    assert gain_between(alike, HELD_SAMPLES, HELD_INPUT).speedup == 1.0


def test_intervals_of_both_places_count():
    (_, found) = stairs([held(HELD_SAMPLES, 2.0, 1.9, 2.1), held(HELD_INPUT, 4.0, 3.9, 4.1)])
    assert found.share == pytest.approx(0.25)
    assert found.low < 0.25 < found.high
    assert (found.high - found.low) / 2 == pytest.approx(
        math.hypot((1 / 1.9 - 1 / 2.1) / 2, (1 / 3.9 - 1 / 4.1) / 2, HOLDING)
    )


def test_what_a_part_gives_is_the_step_without_it():
    ceilings = [held(HELD_RAW, 1.25, 1.2, 1.3), held(HELD_SAMPLES, 4.0, 3.8, 4.2)]
    assert gain_between(ceilings, "", HELD_RAW).speedup == 1.25
    between = gain_between(ceilings, HELD_RAW, HELD_SAMPLES)
    assert between.speedup == pytest.approx(1 / 0.45)
    assert between.low < between.speedup < between.high
    assert gain_between(ceilings, HELD_SAMPLES, HELD_INPUT) is None
    assert gain_between(ceilings, HELD_FIXED, HELD_SAMPLES) is None


def test_strange_figures_give_finite_ones():
    for strange in (0.0, -1.0, math.inf, 1e-12):
        for each in stairs([held(HELD_RAW, strange, strange, strange), held(HELD_INPUT, 2.0, 1.9, 2.1)]):
            assert math.isfinite(each.share) and math.isfinite(each.high)


def test_what_is_left_has_an_interval_with_what_holding_itself_leaves_unknown():
    low, high = left_between(held(HELD_INPUT, 4.0, 2.0, 5.0))
    assert low == pytest.approx(0.25 - math.hypot(0.05, HOLDING))
    assert high == pytest.approx(0.25 + math.hypot(0.25, HOLDING))
    assert left_between(held(HELD_INPUT, 100.0, 99.0, 101.0))[0] == 0.0
    low, high = left_between(held(HELD_INPUT, 4.0, 4.5, 5.0))  # a figure outside of its own interval
    assert low <= 1 / 5.0
    assert high >= 0.25
