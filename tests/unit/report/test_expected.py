"""The gain of the whole training stands first, that of a step second."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import comparison, kept_trials, ordinary, recipe, tuned

from flatout.report.expected import (
    expected_row,
    gain_in_words,
    outcome_in_words,
    parts_in_words,
    steady_from_the_start,
    whole_of,
)
from flatout.report.tune_summary import headline
from flatout.schema.trial import BUDGET_ENDED, Untried
from flatout.schema.whole_training import TrainingTimes, WholeTraining

PLAIN = TrainingTimes(startup_s=10, first_epoch_s=100, later_epoch_s=100, between_s=20)
TUNED = TrainingTimes(startup_s=12, first_epoch_s=90, later_epoch_s=40, between_s=20)
WHOLE = WholeTraining(epochs=5, steps=1000, plain=PLAIN, tuned=TUNED)


def expecting(whole=WHOLE, speedup=2.5, low=2.4, high=2.6):
    exact, _, _ = kept_trials()
    made = recipe(exact, speedup=speedup)
    return replace(made, whole=whole, proof=replace(made.proof, speedup=speedup, low=low, high=high))


def test_the_headline_is_that_of_the_training_that_was_asked_for():
    exact, _, _ = kept_trials()
    report = replace(ordinary(), trials=(exact,), recipe=expecting(), confirmation=comparison(2.5))
    assert headline(report) == (
        "1.69x as fast over the whole training of 5 epochs (6 min 02 s in place of 10 min 10 s) with identical "
        "results. A step of a later epoch: 2.5x as fast. 1 fix kept, 1 candidate tried."
    )


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        (1, "1.07x as fast over the whole training of one epoch (2 min 02 s in place of 2 min 10 s)"),
        (0, "1.07x as fast in a training of 1 epoch, 1.83x of 10, 2.0x of 100"),
    ],
)
def test_where_the_length_is_not_known_three_stand_for_all(epochs, words):
    assert gain_in_words(expecting(replace(WHOLE, epochs=epochs))) == words


def test_an_interval_that_is_wide_gives_the_least():
    made = expecting(low=1.25, high=5.0)  # half of what was measured
    whole = whole_of(made)
    assert whole.tuned.later_epoch_s == pytest.approx(80)
    assert whole.tuned.first_epoch_s == pytest.approx(100)  # no slower than as it is
    assert gain_in_words(made).startswith("at least 1.15x")
    assert whole_of(expecting()) == WHOLE


def test_the_parts_are_named_with_what_was_not_timed():
    (told,) = parts_in_words(expecting(replace(WHOLE, first_known=False)))
    assert told == (
        "Expected, as it is and under the recipe: start-up 10.0 s, then 12.0 s; the first epoch of 1,000 steps 1 min "
        "40 s, then 90.0 s (not timed: taken to be no faster); each later one 1 min 40 s, then 40.0 s; "
        "validation, checkpoints and gaps after each 20.0 s."
    )


def test_nothing_is_said_where_nothing_is_known():
    made = expecting(None)
    assert (gain_in_words(made), parts_in_words(made), whole_of(made)) == ("", [], None)
    assert steady_from_the_start(made)
    row = expected_row(made)
    assert row == {"speedup": 2.5, "plain_s": None, "tuned_s": None, "epochs": [], "step_speedup": 2.5}


def test_what_came_is_compared_to_the_last_step_and_on_a_machine_of_its_own():
    made = expecting()  # a step takes 0.12 s with what lies between epochs
    assert outcome_in_words(made, 100.0, 1000) == (
        "trained 1,000 steps in 1 min 40 s; at the pace recorded for the recipe, the untouched script takes about "
        "2 min 10 s: 1.30x as fast"
    )
    assert outcome_in_words(made, 100.0, 1000, stepped_s=65.0).endswith(
        "takes about 2 min 10 s for as many (the last of them ended after 65.0 s): 2.0x as fast"
    )
    told = outcome_in_words(made, 100.0, 1000, foreign_share=0.4)
    assert told.endswith("on a machine of its own: here other programs used 40% of the cores meanwhile")
    assert outcome_in_words(replace(made, whole=None), 100.0, 1000) == "trained 1,000 steps in 1 min 40 s"


def test_other_arguments_may_ask_for_another_length_or_another_training():
    known = replace(WHOLE, arguments="a", other_arguments="b")
    assert known.asked_with("a", "b") is known
    assert known.asked_with("c", "b") == replace(known, epochs=0)
    assert known.asked_with("c", "d") is None
    assert WHOLE.asked_with("c", "d") is WHOLE  # of a recipe that does not tell


def test_the_json_has_the_training_asked_for_and_three_lengths():
    row = expected_row(expecting())
    assert (row["plain_s"], row["tuned_s"], row["step_speedup"]) == (610, 362, 2.5)
    assert row["speedup"] == pytest.approx(610 / 362)
    assert [each["epochs"] for each in row["epochs"]] == [1, 10, 100]
    unknown = expected_row(expecting(replace(WHOLE, epochs=0)))
    assert (unknown["plain_s"], unknown["speedup"]) == (None, unknown["epochs"][1]["speedup"])


def test_a_tune_without_a_whole_says_what_it_said():
    assert "whole training" not in headline(tuned())


def test_a_budget_that_left_no_time_for_a_trial_is_named():
    left = Untried(fix="compiled-input", reason=BUDGET_ENDED, findings=("IN001",))
    told = headline(replace(ordinary(), trials=(), recipe=None, untried=(left,)))
    assert told == "Nothing was tried: the budget ended before the first candidate was decided. More time: --budget."
