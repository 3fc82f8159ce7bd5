"""Rows of the JSON report: plain values, every number finite."""

import json
import math
from dataclasses import replace

import pytest
from tests.unit.report.specimens import comparison, finding

from flatout.report.rows import ceiling_row, finding_row, finite, recipe_row, trial_row
from flatout.schema.finding import Argument, Ceiling, Evidence
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Candidate, Check, Equality, Equivalence, Selection, Trial, Verdict

WORKERS = Selection("loader-workers", {"workers": 2, "share": math.inf, "deep": [math.nan, {"x": (1, 2)}]})


def trial(**changes):
    candidate = Candidate(selection=WORKERS, equivalence=Equivalence.STATISTICAL)
    return replace(Trial(number=3, candidate=candidate, verdict=Verdict.KEPT), **changes)


@pytest.mark.parametrize(
    ("value", "plain"), [(1.5, 1.5), (math.nan, 0.0), (math.inf, 1e9), (-math.inf, -1e9), (2e9, 1e9), (3, 3.0)]
)
def test_a_number_is_finite(value, plain):
    assert finite(value) == plain


def test_a_ceiling():
    row = ceiling_row(Ceiling(ceiling="one batch held", median_ms=math.nan, speedup=math.inf))
    assert row == {"ceiling": "one batch held", "median_ms": 0.0, "speedup": 1e9}


def test_a_finding():
    row = finding_row(finding(evidence=(Evidence("x", math.inf, "s"),)))
    assert row["code"] == "IN003"
    assert row["phase"] == "input"
    assert row["location"] == {"file": "/work/train.py", "line": 48, "function": "ImageDataset.__getitem__"}
    assert row["evidence"] == [{"name": "x", "value": 1e9, "unit": "s"}]
    assert row["fixes"] == ["compiled-input", "loader-workers"]
    assert finding_row(finding(location=None))["location"] is None
    assert "arguments" not in row


def test_what_was_measured_of_the_call_is_there_for_whoever_writes_an_edit():
    measured = (
        Argument("shape", (8, 3)),
        Argument("dtype", "float32"),
        Argument("calls", 2.5),
        Argument("n", math.inf),
    )
    row = finding_row(finding(arguments=measured))
    assert row["arguments"] == {"shape": [8, 3], "dtype": "float32", "calls": 2.5, "n": 1e9}
    assert finding(arguments=measured).argument("dtype") == "float32"
    assert finding().argument("dtype") is None


def test_a_trial_that_was_not_timed_has_the_same_keys_with_nothing_in_them():
    bare, timed = trial_row(trial()), trial_row(trial(comparison=comparison(speedup=2.0, baseline_ms=100.0)))
    assert bare.keys() == timed.keys()
    assert (bare["speedup"], bare["num_pairs"], bare["results_equal"], bare["checks"]) == (None, 0, None, [])
    assert (timed["speedup"], timed["num_pairs"], timed["baseline_ms"], timed["candidate_ms"]) == (2.0, 8, 100.0, 50.0)


def test_settings_are_plain_at_any_depth():
    row = trial_row(trial(base=(Selection("tf32"),)))
    assert row["settings"] == {"workers": 2, "share": 1e9, "deep": [0.0, {"x": [1, 2]}]}
    assert row["base"] == [{"fix": "tf32", "settings": {}}]
    json.dumps(row, allow_nan=False)


def test_checks_of_equal_results():
    equality = Equality(
        claimed=Equivalence.ROUNDING,
        equal=False,
        deterministic=False,
        checks=(Check(name="losses", passed=False, value=math.inf),),
    )
    row = trial_row(trial(equality=equality))
    assert (row["results_equal"], row["deterministic"]) == (False, False)
    assert (row["checks"][0]["name"], row["checks"][0]["value"]) == ("losses", 1e9)


def test_a_recipe_with_where_it_was_proven():
    proof = Proof(date="2025-01-02", flatout="0.1", python="3.11", torch="2.13", device="cpu", speedup=math.inf)
    kept = (
        Kept(selection=WORKERS, equivalence=Equivalence.BITWISE, speedup=2.0),
        Kept(selection=Selection("tf32"), equivalence=Equivalence.PRECISION),
    )
    row = recipe_row(Recipe(script="train.py", fixes=kept, proof=proof))
    assert (row["script"], row["equivalence"]) == ("train.py", "PRECISION")
    assert [(fix["fix"], fix["equivalence"], fix["speedup"]) for fix in row["fixes"]] == [
        ("loader-workers", "BITWISE", 2.0),
        ("tf32", "PRECISION", 1.0),
    ]
    assert row["proven"]["speedup"] == 1e9
    json.dumps(row, allow_nan=False)


def test_the_message_for_programs_has_the_reason_of_the_bound():
    row = finding_row(finding(message="33% waits.", max_speedup=4.7, bound_by="two cores are shared"))
    assert row["message"] == "33% waits. At most 4.7x (two cores are shared)."
