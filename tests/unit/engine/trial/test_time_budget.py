"""The time of a tune: what is kept must still be confirmed, and what is faster still be compared."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.engine.trial import time_budget
from flatout.engine.trial.pace import Pace
from flatout.engine.trial.time_budget import TimeBudget
from flatout.schema.trial import Candidate, Equivalence, Selection, Trial, Verdict

ANY = Candidate(selection=Selection("cpu-threads"), equivalence=Equivalence.BITWISE, ceiling=2.0)
KEPT = Trial(number=1, candidate=ANY, verdict=Verdict.KEPT)
SOON = 0.5  # seconds that a test itself may take


def shares(all_s=100.0, startup_s=2.0, skip=0, window_s=3.0, epoch_s=0.0, **pace):
    until = time.monotonic() + all_s
    return TimeBudget(until, Pace(startup_s=startup_s, skip=skip, **pace), window_s=window_s, epoch_s=epoch_s)


@pytest.mark.parametrize(
    ("startup_s", "warmup_s", "left_s"), [(1.0, 0.0, 75.0), (10.0, 0.0, 60.4), (1.0, 10.0, 67.4), (1.0, 90.0, 60.0)]
)
def test_what_confirming_takes_is_kept_back_within_bounds(startup_s, warmup_s, left_s):
    found = shares(startup_s=startup_s).left_s([replace(KEPT, warmup_s=warmup_s)])
    assert found == pytest.approx(left_s, abs=SOON)


def test_a_confirmation_may_end_a_little_late_and_never_a_tenth():
    assert 0 < shares(200.0).confirmed_by - time.monotonic() - 200.0 < 20.0


def test_what_each_could_give_decides_its_share():
    small, large = replace(ANY, ceiling=1.1), replace(ANY, selection=Selection("gc-off"), ceiling=4.0)
    mine, most = (shares(1000.0).of(one, (small, large), ()) for one in (small, large))
    assert most > 5 * mine


def test_other_settings_of_the_same_fix_have_no_share_of_their_own():
    other = replace(ANY, selection=Selection("cpu-threads", {"threads": 1}))
    alone, beside = (shares(1000.0).of(ANY, queue, ()) for queue in ((ANY,), (ANY, other)))
    assert beside == pytest.approx(alone, abs=SOON)


def test_what_compiles_needs_the_time_for_that_before_it_is_begun():
    compiled = replace(ANY, selection=Selection("compiled-module"))
    found = shares(60.0)
    assert found.suffices(ANY, ()) and not found.suffices(compiled, ())
    assert found.wanted_s([compiled], ()) > found.wanted_s([ANY], ()) + 25


def test_the_untouched_script_is_compared_once_for_each_class():
    found = shares()
    first = found.comparisons.lasting_s(Equivalence.BITWISE)
    assert found.claim(ANY, ()) is Equivalence.BITWISE
    assert found.comparisons.lasting_s(Equivalence.BITWISE) == pytest.approx(first / 3)
    assert found.comparisons.lasting_s(Equivalence.ROUNDING) > found.comparisons.lasting_s(Equivalence.BITWISE)


def test_on_top_of_a_weaker_class_no_more_is_claimed():
    weaker = replace(KEPT, candidate=replace(ANY, equivalence=Equivalence.PRECISION))
    assert shares(1000.0).claim(ANY, [weaker]) is Equivalence.PRECISION


def test_without_time_to_compare_nothing_is_claimed():
    assert shares(10.0, startup_s=5.0).claim(ANY, ()) is None


@given(st.floats(5.0, 3600.0), st.floats(0.0, 300.0), st.floats(0.0, 300.0))
def test_timing_never_takes_more_than_there_is(all_s, startup_s, warmup_s):
    found, kept = shares(all_s, startup_s=startup_s), [replace(KEPT, warmup_s=warmup_s)]
    left_s = found.left_s(kept)
    assert 0 < left_s <= all_s
    assert 0 < found.timing_s(ANY, kept) <= left_s + SOON
    assert found.of(ANY, (ANY,), kept) <= left_s + SOON


def test_a_candidate_is_begun_only_where_the_first_look_at_its_pairs_can_be_reached():
    slow = {"startup_s": 5.0, "step_s": 1.2, "skip": 2, "block_s": 4.0}
    assert not shares(100.0, **slow).suffices(ANY, ())
    assert shares(600.0, **slow).suffices(ANY, ())
    assert shares(30.0).suffices(ANY, ())


def test_the_more_candidates_are_left_the_more_time_is_asked_for():
    found = shares()
    one, four = found.wanted_s([ANY], ()), found.wanted_s([ANY] * 4, ())
    assert one < four < 4 * one
    assert found.wanted_s([ANY], [replace(KEPT, warmup_s=60.0)]) > one + 60


def test_ranks_that_cannot_take_turns_need_a_start_for_each_block():
    alone, ranks = (shares(startup_s=8.0, together=together) for together in (False, True))
    assert ranks.confirming_s(()) > 2 * alone.confirming_s(())
    switched = replace(ANY, switchable=True)
    assert ranks.suffices(switched, ()) and not ranks.suffices(replace(ANY, switchable=False), ())


BETWEEN = replace(ANY, whole_epochs=True, in_steps=1.0)
BOTH = replace(ANY, whole_epochs=True, in_steps=1.8)


@pytest.mark.parametrize(
    ("candidate", "epoch_s", "by_epochs"),
    [(ANY, 1.0, False), (BETWEEN, 1.0, True), (BETWEEN, 30.0, True), (BOTH, 1.0, True), (BOTH, 30.0, False)],
)
def test_blocks_are_whole_epochs_where_nothing_else_shows_it_or_they_are_short(candidate, epoch_s, by_epochs):
    assert time_budget.by_epochs(shares(200.0, epoch_s=epoch_s), candidate, (candidate,), ()) is by_epochs


def test_what_shows_between_epochs_alone_needs_time_for_four_pairs_of_them():
    assert shares(200.0, epoch_s=5.0).suffices(BETWEEN, ())
    assert not shares(200.0, epoch_s=30.0).suffices(BETWEEN, ())
    assert shares(200.0, epoch_s=30.0).suffices(BOTH, ())
    assert shares(300.0, epoch_s=8.0).of(BETWEEN, (BETWEEN, *[replace(ANY, ceiling=50.0)] * 9), ()) > 64


def test_a_recipe_of_such_is_confirmed_by_epochs():
    kept = [replace(KEPT, candidate=BETWEEN)]
    found = shares(300.0, epoch_s=8.0)
    assert time_budget.needs_epochs(kept) and not time_budget.needs_epochs([replace(KEPT, candidate=BOTH)])
    assert found.confirming_s(kept) == pytest.approx(4 * 2 * 1.125 * 8.0 + 2 * 1.5 * 2.0, rel=0.1)
    assert shares(300.0).confirming_s(kept) != found.confirming_s(kept)
