"""The page of a tune shows both losses over each other, and says whether results stayed equal."""

import re
from dataclasses import replace

import pytest
from tests.unit.report.specimens import comparison, equality, ordinary, trial, tuned, tuned_in_vain
from tests.unit.report.test_html import Reader, data_of

from flatout.report.html.page import page
from flatout.schema.trial import Equivalence, Selection, Verdict

LOSSES = (2.0, 1.0, 0.5, 0.25)


def compared(*, claimed=Equivalence.BITWISE, after=LOSSES, **changes):
    """Return a report whose last kept fix was compared with these losses."""
    found = equality(claimed=claimed, losses=LOSSES, candidate_losses=after, **changes)
    kept = trial(settings={"workers": 2}, equality=found, comparison=comparison(1.5), base=(Selection("tf32", {}),))
    first = trial("tf32", equality=equality(losses=(9.0, 8.0), candidate_losses=(9.0, 8.0)))
    return replace(ordinary(), trials=(first, kept))


def chart_of(text):
    return next((chart for chart in data_of(text) if chart["place"] == "chart-results"), None)


def test_identical_results_are_said_and_drawn():
    text = page(compared())
    words = Reader(text).words
    assert "the losses and all weights of 64 steps are the same to the last bit" in words
    assert "tf32 + loader-workers workers=2" in words
    chart = chart_of(text)
    assert [series["values"] for series in chart["series"]] == [list(LOSSES), list(LOSSES)]
    assert chart["series"][0]["width"] > chart["series"][1].get("width", 1.5)
    assert text.count('id="chart-results"') == 1


def test_how_far_losses_differ_is_said():
    after = (2.0, 1.0, 0.5, 0.2502)
    words = Reader(page(compared(claimed=Equivalence.ROUNDING, after=after))).words
    assert "the losses of 1 of 4 steps differ, by at most 0.0001 of the largest" in words
    assert "to the last bit" not in words


def test_a_script_that_is_not_deterministic_is_not_called_identical():
    words = Reader(page(compared(deterministic=False))).words
    assert "to the last bit" not in words
    assert "the losses of 0 of 4 steps differ" in words


def test_what_was_not_judged_is_not_called_equal():
    words = Reader(page(compared(claimed=Equivalence.SEMANTIC, equal=None))).words
    assert "Results were not compared with a promise: it is another training." in words


@pytest.mark.parametrize("make", [ordinary, tuned, tuned_in_vain], ids=lambda make: make.__name__)
def test_without_losses_there_is_no_such_section(make):
    text = page(make())
    assert "Are the results equal?" not in text
    assert chart_of(text) is None


def test_losses_of_a_fix_that_was_refused_are_not_those_of_the_recipe():
    shown = compared()
    refused = tuple(replace(each, verdict=Verdict.RESULTS_DIFFER) for each in shown.trials)
    assert "Are the results equal?" not in page(replace(shown, trials=refused))


def test_the_shorter_of_both_says_how_many_steps_are_drawn():
    chart = chart_of(page(compared(after=LOSSES[:3])))
    assert [len(series["values"]) for series in chart["series"]] == [3, 3]
    assert re.match("Loss of the first 3 compared steps", chart["caption"])
