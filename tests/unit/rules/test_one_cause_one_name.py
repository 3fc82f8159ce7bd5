"""Time between epochs has one cause and one name: workers that are started, or a line of the script, or no line.

Modules: flatout.rules.facts.epoch_ends.
"""

from dataclasses import replace

import pytest

from flatout.analysis.breakdown import account
from flatout.rules.core.example import example, line
from flatout.rules.core.find import find
from flatout.schema.phase import Phase
from flatout.schema.run import EpochEnd, Frame, LoaderFacts

TRAINING = LoaderFacts(
    name="Windows", is_training=True, num_workers=4, epochs_started=3, start_s=0.3,
    created_at=Frame("train.py", 27, "loader"), iterated_at=Frame("train.py", 38, "<module>"),
)  # fmt: skip
VALIDATION = LoaderFacts(
    name="Windows", num_workers=4, epochs_started=2, start_s=0.3,
    created_at=Frame("train.py", 27, "loader"), iterated_at=Frame("train.py", 45, "<module>"),
)  # fmt: skip


def found(*lines, loaders=(TRAINING, VALIDATION)):
    run = example(step_ms=50, n=100, forward=40, outside_s={Phase.EPOCH_GAP: 1.0}, lines=lines, loaders=loaders).run
    return {each.code: each for each in find(run, account(run))}


def test_starting_the_workers_of_other_loaders_is_no_work_of_the_script():
    codes = found(
        line(0.4, ("train.py", 38, "<module>"), phase=Phase.EPOCH_GAP),
        line(0.6, ("train.py", 45, "<module>"), phase=Phase.EPOCH_GAP),
    )
    assert "EP004" not in codes
    assert "the workers of 2 loaders, 4 of this one, between epochs" in codes["IN009"].message
    assert codes["IN009"].share > 0.15


def test_the_line_of_the_script_is_named_beside_them():
    codes = found(
        line(0.2, ("train.py", 45, "<module>"), phase=Phase.EPOCH_GAP),
        line(0.8, ("train.py", 16, "resample"), ("train.py", 36, "<module>"), phase=Phase.EPOCH_GAP),
    )
    assert codes["EP004"].location == Frame("train.py", 16, "resample")


def test_a_gap_in_which_no_line_was_seen_names_none():
    codes = found(loaders=(LoaderFacts(is_training=True, iterated_at=Frame("train.py", 38, "<module>")),))
    assert codes["EP004"].location is None


LONG = LoaderFacts(is_training=True, num_batches=100, iterated_at=Frame("train.py", 38, "<module>"))


def at_the_end(end, *lines, loader=LONG):
    run = example(step_ms=100, n=30, forward=40, loaders=(loader,), lines=lines).run
    run = replace(run, epoch_end=end)
    return {each.code: each for each in find(run, account(run))}


def test_the_end_of_an_epoch_that_the_deep_run_alone_saw_is_a_share_of_an_epoch():
    resample = line(2.0, ("train.py", 16, "resample"), ("train.py", 36, "<module>"), phase=Phase.EPOCH_GAP)
    found = at_the_end(EpochEnd(gap_s=2.5), resample)["EP004"]
    assert found.share == pytest.approx(0.2)
    assert found.location.line == 16
    assert "20% of each epoch (2.50 s of 12.5 s, n=1, in the deep run) is spent between epochs" in found.message
    assert "Python that works item by item" in found.message


def test_a_validation_that_the_deep_run_alone_saw_is_a_share_of_an_epoch():
    found = at_the_end(EpochEnd(validation_s=10.0))["EP001"]
    assert found.share == pytest.approx(0.5)
    assert "EP001" not in at_the_end(EpochEnd(validation_s=1.0))


def test_nothing_is_said_where_the_length_of_an_epoch_is_not_known():
    unknown = LoaderFacts(is_training=True, iterable_style=True)
    assert not {"EP001", "EP004"} & set(at_the_end(EpochEnd(gap_s=9.0, validation_s=9.0), loader=unknown))
