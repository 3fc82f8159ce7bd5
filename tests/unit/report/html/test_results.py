"""Losses as they are and under the recipe: the sentence, and the chart."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import ordinary

from flatout.report.html.results import losses_chart, results_sentence
from flatout.schema.trial import Candidate, Equality, Equivalence, Selection, Trial, Verdict

TF32, WORKERS = Selection("tf32"), Selection("loader-workers", {"workers": 2})
LOSSES = (2.0, 1.0, 0.5)


def trial(claimed=Equivalence.BITWISE, losses=LOSSES, candidate_losses=LOSSES, verdict=Verdict.KEPT, **changes):
    equality = Equality(
        **{
            "claimed": claimed,
            "equal": True,
            "num_steps": 3,
            "losses": losses,
            "candidate_losses": candidate_losses,
            **changes,
        }
    )
    candidate = Candidate(selection=WORKERS, equivalence=claimed)
    return Trial(number=1, candidate=candidate, verdict=verdict, equality=equality, base=(TF32,))


def with_trials(*trials):
    return replace(ordinary(), trials=trials)


@pytest.mark.parametrize(
    "trials",
    [
        (),
        (trial(verdict=Verdict.SLOWER),),
        (replace(trial(), equality=None),),
        (trial(losses=(1.0,)),),
    ],
)
def test_without_losses_of_a_kept_fix_nothing_is_said(trials):
    assert results_sentence(with_trials(*trials)) == ""
    assert losses_chart(with_trials(*trials)) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (trial(), "Identical results: the losses and all weights of 3 steps are the same to the last bit."),
        (
            trial(deterministic=False),
            "Results as promised (identical results): the losses of 0 of 3 steps differ, by at most 0 of the largest.",
        ),
        (
            trial(Equivalence.ROUNDING, candidate_losses=(2.0, 1.02, 0.5, 9.0)),
            "Results as promised (the same maths, other rounding): the losses of 1 of 3 steps differ, by at most 0.01 "
            "of the largest.",
        ),
        (trial(Equivalence.SEMANTIC, equal=None), "Results were not compared with a promise: it is another training."),
        (
            trial(Equivalence.ROUNDING, losses=(0.0, 0.0), candidate_losses=(0.0, 0.0)),
            "Results as promised (the same maths, other rounding): the losses of 0 of 2 steps differ, by at most 0 of "
            "the largest.",
        ),
    ],
)
def test_what_came_of_the_comparison_is_said(given, said):
    found = results_sentence(with_trials(given))
    assert found == f"{said} Compared from the same seeds, step by step: tf32 + loader-workers workers=2."


def test_the_last_kept_trial_counts():
    earlier = trial(Equivalence.ROUNDING, candidate_losses=(2.0, 3.0, 0.5))
    later = trial()
    assert results_sentence(with_trials(earlier, later, trial(verdict=Verdict.SLOWER))).startswith("Identical")


def test_the_chart_has_as_many_points_as_both_have():
    chart = losses_chart(with_trials(trial(candidate_losses=(2.0, 1.23456789))))
    assert chart["xs"] == [0, 1]
    assert [series["values"] for series in chart["series"]] == [[2.0, 1.0], [2.0, 1.23457]]
    assert chart["series"][0]["width"] == 5
    assert "first 2 compared steps" in chart["caption"]
