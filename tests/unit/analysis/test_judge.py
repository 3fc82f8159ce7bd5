"""Whether a candidate is faster: what brings nothing is kept no more often than was paid for, whatever the noise."""

import math
import random
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.analysis.blocks import candidate_first, stretch
from flatout.analysis.judge import CONFIRM_LOOKS, FLOOR, allocate, compare, confirm, last_look, t_quantile, t_tail
from flatout.schema.trial import Pair

LOOKS = (4, 8, 16, 32)
ALPHA = 0.05
TRIALS = 1000
MIRROR = {"faster": "slower", "slower": "faster"}

times = st.floats(min_value=1e-3, max_value=1e5, allow_nan=False)
many_pairs = st.lists(st.builds(Pair, times, times), max_size=40)


# ---------------------------------------------------------------------------------------------------------- Student's t
@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [  # Abramowitz and Stegun, table 26.10, and the figures for four looks
        (0.75, 1, 1.000),
        (0.975, 1, 12.706),
        (0.995, 3, 5.841),
        (0.995, 7, 3.499),
        (0.995, 15, 2.947),
        (0.9995, 3, 12.924),
        (0.9995, 30, 3.646),
        (0.975, 120, 1.980),
    ],
)
def test_quantiles_are_those_of_the_tables(share, freedom, value):
    assert t_quantile(share, freedom) == pytest.approx(value, abs=6e-4)


@given(st.floats(0.001, 0.999), st.integers(1, 200))
def test_quantile_and_tail_undo_each_other(share, freedom):
    assert t_tail(t_quantile(share, freedom), freedom) == pytest.approx(1 - share, rel=1e-9, abs=1e-12)


@given(st.floats(-50, 50), st.integers(1, 200))
def test_both_tails_together_are_everything(value, freedom):
    assert t_tail(value, freedom) + t_tail(-value, freedom) == pytest.approx(1)


def test_one_degree_of_freedom_is_the_cauchy_distribution():
    for value in (0.0, 0.3, 1.0, 7.0, 1e6):
        assert t_tail(value, 1) == pytest.approx(0.5 - math.atan(value) / math.pi, rel=1e-9, abs=1e-12)


def test_impossible_quantiles_and_degrees_of_freedom_are_refused():
    for share in (0, 1, -1, math.nan):
        with pytest.raises(ValueError, match="quantile"):
            t_quantile(share, 3)
    with pytest.raises(ValueError, match="degree"):
        t_tail(1.0, 0)


# ---------------------------------------------------------------------------------------------------------------- looks
def pairs(ratios, ms=10.0):
    return [Pair(ms, ms / ratio) for ratio in ratios]


def steady(ratio, count, spread=0.01, seed=0):
    generator = random.Random(seed)
    return pairs([ratio * math.exp(generator.gauss(0, spread)) for _ in range(count)])


def judged(found, alpha=ALPHA, looks=LOOKS):
    return compare(found, alpha=alpha, looks=looks)


def decision_of(found, alpha=ALPHA, looks=LOOKS):
    """Go on from look to look as a trial does; return the decision and the number of pairs it took."""
    for look in looks:
        decision = judged(found[:look], alpha, looks).decision
        if decision:
            return decision, look
    return "", max(looks)


def test_a_clear_gain_is_seen_at_the_first_look():
    assert decision_of(steady(1.3, 32)) == ("faster", 4)


def test_a_clear_loss_is_seen_at_the_first_look():
    assert decision_of(steady(0.8, 32)) == ("slower", 4)


def test_nothing_is_decided_between_two_looks():
    assert [bool(judged(steady(2.0, count)).decision) for count in range(10)] == [
        count in (4, 8) for count in range(10)
    ]


def test_a_gain_below_the_floor_is_not_worth_keeping_however_sure_it_is():
    assert decision_of(steady(1.01, 32, spread=0.001)) == ("not faster", 4)


def test_what_cannot_be_told_apart_is_undecided_after_the_last_look():
    assert judged(steady(1.02, 32, spread=0.2)).decision == "undecided"


def test_more_pairs_than_were_planned_decide_nothing_more():
    assert judged(steady(1.5, 33)).decision == "undecided"


def test_where_no_more_pairs_can_be_had_the_next_look_is_made_of_those_there_are():
    found = steady(3.4, 6, spread=0.1)
    assert judged(found).decision == ""
    assert last_look(found, alpha=ALPHA, looks=LOOKS) == "faster"
    assert last_look(steady(1.0, 6), alpha=ALPHA, looks=LOOKS) == "not faster"
    assert [last_look(found[:few], alpha=ALPHA, looks=LOOKS) for few in range(4)] == [""] * 4
    assert last_look(steady(1.02, 32, spread=0.2), alpha=ALPHA, looks=LOOKS) == "undecided"


def test_the_last_look_may_spend_what_later_ones_would_have():
    found = next(found for spread in range(1, 60) if judged(found := steady(2.0, 8, spread=spread / 20)).decision == "")
    assert last_look(found, alpha=ALPHA, looks=LOOKS) == "faster"


@pytest.mark.slow
def test_a_look_that_the_time_made_early_keeps_what_brings_nothing_no_more_often_than_was_paid_for():
    generator, kept = random.Random(3), 0
    for _ in range(TRIALS):
        found = blocks(gaussian, generator)[: generator.randint(4, 32)]
        decided = [judged(found[:look]).decision for look in LOOKS if look <= len(found)]
        kept += next(filter(None, [*decided, last_look(found, alpha=ALPHA, looks=LOOKS)]), "") == "faster"
    assert kept / TRIALS <= ALPHA + 2.5 * math.sqrt(ALPHA * (1 - ALPHA) / TRIALS)


def test_looks_that_were_made_are_counted():
    assert [judged(steady(1.5, count)).looks for count in (0, 3, 4, 8, 15, 32)] == [0, 0, 1, 2, 2, 4]


def test_the_speed_up_comes_with_an_interval_around_it():
    found = judged(steady(1.5, 16))
    assert found.low < found.speedup < found.high
    assert found.speedup == pytest.approx(1.5, rel=0.01)


def test_one_wild_pair_hides_no_gain():
    found = steady(1.1, 32, spread=0.02)
    found[2] = Pair(10.0, 15.0)
    assert decision_of(found) == ("faster", 8)
    found[2] = Pair(10.0, 40.0)
    assert decision_of(found)[0] == "faster"


def test_a_candidate_with_rare_but_long_stalls_of_its_own_is_not_faster():
    found = [Pair(10.0, 9.0 if number % 9 else 40.0) for number in range(32)]
    assert "faster" not in {decision_of(found)[0], judged(found).decision}


def test_a_recipe_is_confirmed_refused_or_looked_at_again():
    assert confirm(steady(1.3, 12)).decision == "faster"
    assert confirm(steady(1.0, 12)).decision == "not faster"
    assert confirm([]).decision == "undecided"


def confirmed(gain, spread, rng):
    """Return whether a recipe of a true gain is confirmed at any look, and the looks it took."""
    pairs = []
    for look, wanted in enumerate(CONFIRM_LOOKS):
        pairs += [Pair(10.0, 10.0 / gain * rng.lognormvariate(0, spread)) for _ in range(wanted - len(pairs))]
        found = confirm(pairs, look)
        if found.decision != "undecided":
            break
    return found.decision == "faster", found.looks


def test_what_brings_nothing_is_confirmed_in_one_of_a_hundred_at_most():
    rng = random.Random(5)
    assert sum(confirmed(1.0, spread, rng)[0] for spread in (0.02, 0.1, 0.3) for _ in range(500)) <= 15


def test_a_gain_of_some_percent_is_confirmed_by_later_looks():
    rng = random.Random(6)
    found = [confirmed(1.05, 0.1, rng) for _ in range(200)]
    assert sum(yes for yes, _ in found) >= 150  # 60 % are asked of a whole tune, and the trial has its own error
    assert sum(yes and looks > 1 for yes, looks in found) >= 100


def test_the_looks_at_a_recipe_spend_one_percent():
    assert confirm(steady(1.0, 96), len(CONFIRM_LOOKS) - 1).alpha == pytest.approx(0.01)


@given(st.lists(st.floats(0, 1e9, allow_nan=False), max_size=60))
def test_all_candidates_together_spend_one_budget(ceilings):
    alphas = allocate(ceilings)
    assert len(alphas) == len(ceilings)
    assert sum(alphas) <= 0.02 * (1 + 1e-9)
    assert all(alpha >= 0.01 / len(ceilings) * (1 - 1e-9) for alpha in alphas)


def test_what_could_give_more_may_spend_more():
    large, small, nothing = allocate([4.0, 1.2, 1.0])
    assert large > 2 * small > 2 * nothing > 0


# ----------------------------------------------------------------------------------------------------------- properties
@given(many_pairs, st.floats(1e-6, 0.2))
def test_swapped_pairs_give_the_mirrored_decision(found, alpha):
    swapped = [Pair(pair.candidate_ms, pair.baseline_ms) for pair in found]
    one, other = judged(found, alpha), judged(swapped, alpha)
    assert {one.decision, other.decision} & set(MIRROR) in (set(), {"faster", "slower"})
    if one.decision in MIRROR:
        assert other.decision == MIRROR[one.decision]
    assert one.speedup * other.speedup == pytest.approx(1, rel=1e-6)


@given(st.floats(0.2, 5), st.integers(0, 64), st.floats(1e-6, 0.2))
def test_more_pairs_of_the_same_ratio_never_turn_a_gain_into_a_loss(ratio, count, alpha):
    allowed = {"", "undecided", "not faster", "faster" if ratio >= 1 else "slower"}
    assert judged(pairs([ratio] * count), alpha).decision in allowed


@given(many_pairs, times)
def test_the_unit_of_time_does_not_matter(found, unit):
    scaled = [Pair(pair.baseline_ms * unit, pair.candidate_ms * unit) for pair in found]
    assert judged(found).speedup == pytest.approx(judged(scaled).speedup, rel=1e-6)


@given(st.lists(st.builds(Pair, *[st.floats(allow_nan=True, allow_infinity=True)] * 2), max_size=40))
def test_no_times_whatever_make_it_fail(found):
    comparison = judged(found)
    assert comparison.decision in ("", "faster", "slower", "not faster", "undecided")
    assert comparison.pairs == tuple(found)
    assert not math.isnan(comparison.speedup)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
def test_pairs_without_a_time_say_nothing_and_keep_nothing(wrong):
    found = judged([Pair(wrong, 1.0)] * 32)
    assert (found.speedup, found.decision) == (1.0, "undecided")


def test_one_pair_says_nothing():
    assert compare([Pair(2.0, 1.0)], alpha=0.5, looks=(1,)).decision == "undecided"


def test_no_error_probability_keeps_nothing():
    assert judged(steady(3.0, 32), alpha=0.0).decision == "undecided"


def test_equal_times_are_not_faster():
    assert judged(pairs([1.0] * 4)).decision == "not faster"


def test_a_handful_of_equal_ratios_is_no_proof_of_precision():
    assert compare(pairs([FLOOR] * 4), alpha=1e-9, looks=(4,)).decision == "undecided"


# ----------------------------------------------------------------------------------------------------------- false wins
def gaussian(generator, count):
    return [generator.gauss(0, 0.05) for _ in range(count)]


def heavy_tailed(generator, count):
    """Student's t with 3 degrees of freedom."""
    return [0.03 * generator.gauss(0, 1) / math.sqrt(generator.gammavariate(1.5, 2) / 3) for _ in range(count)]


def stalls(generator, count):
    return [generator.gauss(0, 0.02) + (generator.random() < 0.1) * generator.expovariate(2) for _ in range(count)]


def autocorrelated(generator, count):
    values = [generator.gauss(0, 0.05)]
    while len(values) < count:
        values.append(0.6 * values[-1] + 0.8 * generator.gauss(0, 0.05))
    return values


def wandering(generator, count):
    return list(accumulate(generator.gauss(0, 0.02) for _ in range(count)))


def drifting(generator, count):
    slope = generator.gauss(0, 0.02)
    return [slope * number + generator.gauss(0, 0.02) for number in range(count)]


def another_job(generator, count):
    """Another process that comes and goes."""
    on, values = generator.random() < 0.5, []
    for _ in range(count):
        on ^= generator.random() < 0.15
        values.append(0.3 * on + generator.gauss(0, 0.02))
    return values


def blocks(noise, generator, gain=1.0, number=32):
    """Pairs of blocks as they are taken: by lot, either first."""
    seed, logs = generator.random(), noise(generator, 2 * number)
    found = []
    for pair, (first, second) in enumerate(zip(logs[::2], logs[1::2], strict=True)):
        baseline, candidate = (second, first) if candidate_first(pair, seed) else (first, second)
        found.append(Pair(10 * math.exp(baseline), 10 * math.exp(candidate) / gain))
    return found


NOISES = [gaussian, heavy_tailed, stalls, autocorrelated, wandering, drifting, another_job]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.slow
def test_what_brings_nothing_is_kept_no_more_often_than_was_paid_for(noise):
    generator = random.Random(noise.__name__)
    kept = sum(decision_of(blocks(noise, generator))[0] == "faster" for _ in range(TRIALS))
    assert kept / TRIALS <= ALPHA + 2.5 * math.sqrt(ALPHA * (1 - ALPHA) / TRIALS)


def ticking(generator, lengths, period):
    """Blocks of these lengths while another process wakes once in `period`, for a fifth of it."""

    def busy(until):
        whole, rest = divmod(until, period)
        return until + 0.5 * (whole * 0.2 * period + min(rest, 0.2 * period))

    now, values = generator.random() * period, []
    for length in lengths:
        values.append(math.log((busy(now + length) - busy(now)) / length) + generator.gauss(0, 0.02))
        now += length
    return values


@pytest.mark.parametrize("period", [2.0, 3.0, 4.0, 4.2, 8.0])
@pytest.mark.slow
def test_a_load_that_comes_in_step_with_the_blocks_makes_few_false_wins(period):
    """A fixed order A B B A keeps such a thing in more than a third of the trials (period 4)."""
    generator = random.Random(period)
    kept = 0
    for _ in range(TRIALS // 2):
        seed = generator.random()
        lengths = [stretch(pair, seed) for pair in range(32) for _ in range(2)]
        found = blocks(lambda generator, _, lengths=lengths: ticking(generator, lengths, period), generator)
        kept += decision_of(found)[0] == "faster"
    assert kept / (TRIALS // 2) <= 2.5 * ALPHA


@pytest.mark.parametrize("noise", [gaussian, heavy_tailed, stalls, autocorrelated, another_job])
def test_a_gain_of_a_fifth_is_found_under_any_noise(noise):
    generator = random.Random(noise.__name__)
    kept = sum(decision_of(blocks(noise, generator, gain=1.2), 0.002)[0] == "faster" for _ in range(200))
    assert kept >= 180


# --------------------------------------------------------------------------------------------------------------- blocks
def test_either_arm_comes_first_equally_often_and_in_no_order():
    drawn = [candidate_first(pair, 7) for pair in range(2000)]
    assert 0.45 < sum(drawn) / 2000 < 0.55
    changes = sum(one != other for one, other in pairwise(drawn))
    assert 0.45 < changes / 2000 < 0.55


def test_trials_draw_different_orders_and_the_same_trial_draws_the_same():
    assert [candidate_first(pair, 1) for pair in range(32)] == [candidate_first(pair, 1) for pair in range(32)]
    assert [candidate_first(pair, 1) for pair in range(32)] != [candidate_first(pair, 2) for pair in range(32)]


def test_blocks_are_between_three_fifths_and_five_thirds_of_their_length():
    drawn = [stretch(pair) for pair in range(1000)]
    assert 0.6 < min(drawn) < 0.65
    assert 1.6 < max(drawn) < 1.66
