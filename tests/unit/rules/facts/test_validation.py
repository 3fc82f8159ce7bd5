"""How much of a validation its loaders take: what a fix of the input can shorten of it."""

from dataclasses import replace

import pytest

from flatout.rules.core.example import example, line
from flatout.rules.ep001_validation_dominates import RULE
from flatout.rules.facts.validation import input_share
from flatout.schema.facts import LoaderFacts
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame

LOOP, METRIC = ("train.py", 70, "evaluate"), ("train.py", 12, "Meter.update")
LOADER = LoaderFacts(name="Pictures", iterated_at=Frame(*LOOP))


def truth(*lines):
    made = example(step_ms=50, n=100, forward=40, outside_s={Phase.VALIDATION: 9.0}, loaders=(LOADER,))
    causes = Causes(num_steps=10, phases_s={}, lines=tuple(replace(each, phase=Phase.VALIDATION) for each in lines))
    return made, replace(made.run, causes=causes)


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        ([line(1.0, METRIC, LOOP)], 0.0),
        ([line(1.0, METRIC, LOOP), line(1.0, LOOP, leaf="torch")], 0.5),  # collating, or waiting for a worker
        ([line(3.0, ("data.py", 5, "Pictures.__getitem__"), LOOP), line(1.0, METRIC, LOOP)], 0.75),
        ([line(1.0, ("data.py", 9, "decode"), ("data.py", 5, "Pictures.__getitem__"), LOOP)], 1.0),
        ([], 1.0),  # nothing is known
        ([line(0.01, METRIC, LOOP)], 1.0),
    ],
)
def test_the_share_of_loaders(lines, share):
    assert input_share(truth(*lines)[1]) == pytest.approx(share)


def test_fixes_of_the_input_are_named_where_loaders_take_some_of_it():
    for lines, named in (([line(1.0, METRIC, LOOP)], False), ([line(1.0, LOOP)], True)):
        made, run = truth(*lines)
        found = RULE.check(run, made.breakdown, ())
        assert bool(found.fixes) is named


def test_what_follows_one_call_of_the_model_by_hand_is_named():
    lines = (
        line(1.0, ("train.py", 18, "cluster"), ("train.py", 29, "<module>"), phase=Phase.EPOCH_GAP, leaf="torch"),
        line(0.02, ("train.py", 28, "<module>"), phase=Phase.EPOCH_GAP, leaf="torch"),
    )
    made = example(step_ms=50, n=100, forward=40, outside_s={Phase.VALIDATION: 9.0}, lines=lines)
    found = RULE.check(made.run, made.breakdown, ())
    assert found is not None and found.location == Frame("train.py", 18, "cluster")
