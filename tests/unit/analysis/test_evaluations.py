"""Gaps between epochs in which the model runs piece by piece are validations."""

from dataclasses import replace

import pytest

from flatout.analysis.breakdown import account
from flatout.analysis.evaluations import with_evaluations
from flatout.rules.core.example import example, line
from flatout.rules.core.find import find
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, EpochEnd, ModelFacts

GAP = {Phase.EPOCH_GAP: 4.0}
DECODES = line(
    1.5,
    ("net.py", 40, "Speller.decode"),
    ("score.py", 9, "error_rate"),
    phase=Phase.EPOCH_GAP,
    leaf="torch",
    samples=90,
)
COUNTS = line(0.4, ("score.py", 4, "distance"), ("score.py", 10, "error_rate"), phase=Phase.EPOCH_GAP, samples=30)


def recorded(*lines, outside_s=GAP, name="Speller"):
    causes = Causes(lines=lines, num_steps=100)
    return example(
        step_ms=50, n=100, forward=40, outside_s=outside_s, causes=causes, models=(ModelFacts(name=name),)
    ).run


def test_a_decoder_of_the_model_makes_the_gap_a_validation():
    run = with_evaluations(recorded(DECODES, COUNTS))
    breakdown = account(run)
    assert breakdown.outside_s(Phase.EPOCH_GAP) == 0
    assert breakdown.outside_s(Phase.VALIDATION) == pytest.approx(4.0)
    (found,) = [each for each in find(run, breakdown) if each.code.startswith("EP")]
    assert (found.code, found.location.file, found.location.line) == ("EP001", "score.py", 9)


@pytest.mark.parametrize(
    "run",
    [
        recorded(replace(DECODES, seconds=0.2), COUNTS),
        recorded(replace(DECODES, samples=5, seconds=3.0)),
        recorded(DECODES, name="Other"),
        recorded(replace(DECODES, stack=(replace(DECODES.stack[0], function="Speller.update_average"),))),
        recorded(DECODES, outside_s={**GAP, Phase.VALIDATION: 2.0}),
        replace(recorded(DECODES), causes=None),
    ],
)
def test_other_gaps_stay_gaps(run):
    assert with_evaluations(run) == run


def test_a_validation_inside_a_step_has_the_line_that_calls_the_model_between_epochs():
    run = recorded(DECODES, COUNTS, outside_s={Phase.VALIDATION: 4.0})
    (found,) = [each for each in find(run, account(run)) if each.code == "EP001"]
    assert (found.location.file, found.location.line) == ("score.py", 9)


def test_an_end_of_an_epoch_that_was_seen_once_is_one_too():
    run = replace(recorded(DECODES, outside_s={}), epoch_end=EpochEnd(gap_s=3.0, checkpoint_s=1.0))
    assert with_evaluations(run).epoch_end == EpochEnd(validation_s=3.0, checkpoint_s=1.0)
