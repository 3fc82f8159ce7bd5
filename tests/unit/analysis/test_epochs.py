"""The length of an epoch, in steps and in time."""

from dataclasses import replace

import pytest

from flatout.analysis.breakdown import account
from flatout.analysis.epochs import (
    ShortEpochs,
    epoch_or_cycle,
    epoch_steps,
    project_epoch,
    short_epochs,
    with_epoch_end,
)
from flatout.rules.core.example import example, steps_of
from flatout.schema.phase import Phase
from flatout.schema.run import End, EpochEnd, Header, LoaderFacts, Outside

PARTS = {Phase.INPUT: 20.0, Phase.SYNC: 5.0, Phase.FORWARD: 75.0}


def epochs_of(*lengths):
    numbers = [epoch for epoch, length in enumerate(lengths) for _ in range(length)]
    return steps_of([PARTS] * len(numbers), epoch=numbers)


@pytest.mark.parametrize(("lengths", "steps"), [((7, 30, 30, 4), 30), ((30, 4), 30), ((4,), 0)])
def test_a_whole_epoch_tells_its_length_the_first_and_the_last_may_be_cut(lengths, steps):
    assert epoch_steps(example(steps=epochs_of(*lengths)).run) == steps


def test_a_loader_tells_where_no_epoch_ended():
    loader = LoaderFacts(is_training=True, num_batches=1000)
    steps = steps_of([PARTS] * 20, num_batches=4)
    assert epoch_steps(example(steps=steps, loaders=(loader,)).run) == 250


def test_an_epoch_is_its_steps_and_what_lies_between_them():
    run = example(steps=epochs_of(30, 30, 30), outside_s={Phase.VALIDATION: 4.0, Phase.CHECKPOINT: 1.0}).run
    epoch = project_epoch(run, account(run))
    assert (epoch.steps, epoch.ended) == (30, 2)
    assert epoch.between_s == pytest.approx(2.5)
    assert epoch.seconds == pytest.approx(3.0 + 2.5)
    assert epoch.waiting_s == pytest.approx(3.0 * 0.25)


def test_without_an_end_of_an_epoch_nothing_is_known_of_what_lies_between():
    run = example(steps=epochs_of(30), loaders=(LoaderFacts(is_training=True, num_batches=300),)).run
    epoch = project_epoch(run, account(run))
    assert (epoch.steps, epoch.ended, epoch.between_s) == (300, 0, 0.0)
    assert epoch.seconds == pytest.approx(30.0)


def test_an_unknown_length_is_not_guessed():
    run = example(steps=epochs_of(30)).run
    assert project_epoch(run, account(run)) is None


def test_of_a_finished_training_every_epoch_has_ended():
    end, header = End(reason="script ended"), Header(script="train.py", mode="whole")
    detail = {"outside_s": {Phase.VALIDATION: 4.0}, "epoch_lengths": (30, 30), "end": end, "header": header}
    run = example(steps=epochs_of(30, 30), **detail).run
    epoch = project_epoch(run, account(run))
    assert (epoch.steps, epoch.ended, epoch.between_s) == (30, 2, pytest.approx(2.0))


def shortened(steps_in_epoch, *, trains=True, **detail):
    lengths = (steps_in_epoch,) * 3
    numbers = [epoch for epoch, length in enumerate(lengths) for _ in range(length)]
    run = example(
        steps=steps_of([PARTS] * len(numbers), epoch=numbers, **detail), loaders=(LoaderFacts(is_training=trains),)
    ).run
    return short_epochs(run, account(run), window_s=18.0)


@pytest.mark.parametrize(
    ("steps_in_epoch", "found"),
    [(10, ShortEpochs()), (24, ShortEpochs()), (25, ShortEpochs(16, True)), (60, ShortEpochs(16, False))],
)
def test_epochs_that_do_not_fit_a_comparison_end_early(steps_in_epoch, found):
    assert shortened(steps_in_epoch) == found  # steps of 100 ms, and a sixth of 18 s for a whole one


def test_accumulated_steps_have_as_many_batches_each():
    assert shortened(60, num_batches=4).batches == 64


def test_epochs_without_a_loader_end_by_themselves():
    assert shortened(60, trains=False) == ShortEpochs()


def deep_run(*, batches_timed, loaders=()):
    """Return a deep run in which the first epoch ended: a gap of 2 s, a checkpoint of 1 s, batches of a validation."""
    run = example(steps=epochs_of(10, 2), loaders=loaders).run
    last = run.steps[9].start_ns + run.steps[9].wall_ns
    parts = [(Phase.EPOCH_GAP, 2.0, 0), (Phase.CHECKPOINT, 1.0, 0), *[(Phase.VALIDATION, 0.25, 1)] * batches_timed]
    outside = tuple(Outside(phase=phase, start_ns=last, wall_ns=round(s * 1e9), num_batches=n) for phase, s, n in parts)
    return replace(run, outside=outside)


def test_the_end_of_a_long_epoch_is_taken_from_the_deep_run():
    validation = LoaderFacts(name="Held out", num_batches=40, epochs_started=1)
    training = LoaderFacts(is_training=True, num_batches=300, epochs_started=2)
    timed = example(steps=epochs_of(30), loaders=(training,)).run
    run = with_epoch_end(timed, deep_run(batches_timed=8, loaders=(training, validation)))
    assert run.epoch_end == EpochEnd(gap_s=2.0, validation_s=pytest.approx(10.0), checkpoint_s=1.0)
    epoch = project_epoch(run, account(run))
    assert (epoch.steps, epoch.ended, epoch.between_s) == (300, 1, pytest.approx(13.0))
    assert epoch.seconds == pytest.approx(30.0 + 13.0)


def test_what_the_timed_run_has_seen_itself_stands():
    timed = example(steps=epochs_of(30, 30)).run
    assert with_epoch_end(timed, deep_run(batches_timed=8)).epoch_end is None
    one_epoch = example(steps=epochs_of(30)).run
    assert with_epoch_end(one_epoch, one_epoch).epoch_end is None


def test_a_whole_validation_is_taken_as_it_was():
    assert with_epoch_end(example(steps=epochs_of(30)).run, deep_run(batches_timed=4)).epoch_end.validation_s == 1.0


def validated(*places, steps=100):
    """A recording by hand-written loops whose validations, of two batches each, come after so many steps."""
    run = example(steps=epochs_of(steps)).run
    starts = [step.start_ns for step in run.steps]
    ends = [starts[at] - 1 if at < steps else starts[-1] + run.steps[-1].wall_ns for at in places]
    stretches = [Outside(phase=Phase.VALIDATION, start_ns=end, wall_ns=10**9) for end in ends for _ in range(2)]
    return replace(run, outside=tuple(stretches))


@pytest.mark.parametrize(
    ("places", "steps"), [((40,), 40), ((20, 60, 100), 40), ((0, 30, 60), 30), ((), None), ((10, 20, 80), None)]
)
def test_where_no_loader_tells_validations_do(places, steps):
    run = validated(*places)
    found = epoch_or_cycle(run, account(run))
    assert (found and found.steps) == steps
    if steps:
        assert found.between_s == pytest.approx(2.0, rel=0.6)
        assert found.seconds == pytest.approx(steps * 0.1 + found.between_s)
    assert project_epoch(run, account(run)) is None
