"""What a recipe gives a whole training, put together from what was measured of its parts."""

import pytest

from flatout.analysis.breakdown import account
from flatout.analysis.whole_gain import Gains, whole_gain
from flatout.rules.core.example import example, steps_of
from flatout.schema.phase import Phase
from flatout.schema.run import Header, LoaderFacts, Planned

PARTS = {Phase.INPUT: 60.0, Phase.FORWARD: 40.0}


def recorded(*lengths, planned=Planned(), num_batches=1, **detail):  # noqa: B008  it is frozen
    numbers = [epoch for epoch, length in enumerate(lengths) for _ in range(length)]
    steps = steps_of([PARTS] * len(numbers), epoch=numbers, num_batches=num_batches)
    return example(steps=steps, planned=planned, **detail).run


def gained(run, **gains):
    return whole_gain(run, account(run), Gains(**gains))


def test_a_training_is_its_start_its_first_epoch_and_its_later_ones():
    run = recorded(30, 30, 30, planned=Planned(passes=10), outside_s={Phase.STARTUP: 6.0, Phase.VALIDATION: 2.0})
    whole = gained(run, later=3.0, first=1.5, once_s=2.0)
    assert (whole.epochs, whole.steps) == (10, 30)
    plain_s = 6.0 + 10 * 3.0 + 10 * 1.0
    tuned_s = 8.0 + 3.0 / 1.5 + 9 * 3.0 / 3.0 + 10 * 1.0
    assert whole.plain.whole_s(10) == pytest.approx(plain_s, rel=1e-6)
    assert whole.tuned.whole_s(10) == pytest.approx(tuned_s, rel=1e-6)
    assert whole.speedup(10) == pytest.approx(plain_s / tuned_s, rel=1e-6)
    assert whole.speedup(1) < whole.speedup(10) < whole.speedup(1000) < 3.0


def test_a_first_epoch_that_was_not_timed_is_no_faster():
    whole = gained(recorded(30, 30, 30), later=3.0)
    assert not whole.first_known
    assert whole.tuned.first_epoch_s == whole.plain.first_epoch_s
    assert whole.epochs == 0  # the script does not tell


def test_loops_that_count_steps_are_one_epoch_of_so_many():
    run = recorded(40, planned=Planned(steps=5000))
    whole = gained(run, later=2.0, first=2.0)
    assert (whole.epochs, whole.steps) == (1, 5000)
    assert whole.plain.first_epoch_s == pytest.approx(500.0)
    assert whole.speedup(1) == pytest.approx(2.0, rel=0.01)


def test_steps_over_epochs_that_end_are_so_many_epochs():
    whole = gained(recorded(30, 30, 30, planned=Planned(steps=3000)), later=2.0, first=1.0)
    assert (whole.epochs, whole.steps) == (100, 30)


def test_batches_that_loops_count_are_put_together_in_steps():
    run = recorded(40, planned=Planned(steps=4000), num_batches=4)
    assert gained(run, later=2.0, first=2.0).steps == 1000


def test_batches_over_epochs_that_end_are_put_together_too_and_steps_of_the_optimizer_are_not():
    def epochs(**planned):
        return gained(recorded(30, 30, 30, planned=Planned(**planned), num_batches=4), later=2.0).epochs

    assert epochs(steps=3600) == 30
    assert epochs(updates=3600) == 120


def test_no_recipe_makes_a_start_shorter():
    run = recorded(30, 30, 30, outside_s={Phase.STARTUP: 1.0})
    assert gained(run, later=2.0, once_s=-0.4).tuned.startup_s == 1.0


def test_what_flatout_itself_takes_at_the_start_is_no_part_of_the_script_and_comes_twice_under_run():
    run = recorded(30, 30, 30, outside_s={Phase.STARTUP: 2.0}, header=Header(script="train.py", attaching_s=0.4))
    whole = gained(run, later=2.0)
    assert whole.plain.startup_s == pytest.approx(1.6)
    assert whole.tuned.startup_s == pytest.approx(2.4)


def test_an_epoch_of_unknown_length_gives_no_whole():
    assert gained(recorded(30), later=2.0) is None
    loader = LoaderFacts(is_training=True, num_batches=300)
    assert gained(recorded(30, loaders=(loader,)), later=2.0).steps == 300
