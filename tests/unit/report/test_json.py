"""The JSON that programs rely on."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.report.specimens import (
    empty,
    finding,
    healthy,
    hostile,
    hostile_tune,
    ordinary,
    report,
    trial,
    tuned,
    tuned_in_vain,
)

from flatout.errors import BadRecording
from flatout.report.json import dumps, from_json, to_json
from flatout.schema.finding import Evidence

GOLDEN = Path(__file__).parent / "golden" / "ordinary.json"


def test_schema_one_is_what_it_was_when_it_was_promised():
    assert dumps(ordinary()) == GOLDEN.read_text(encoding="utf-8")


def test_trials_and_recipe_are_what_they_were_when_they_were_promised():
    document = to_json(tuned())
    golden = json.loads(GOLDEN.with_name("tuned.json").read_text(encoding="utf-8"))
    assert rounded({key: document[key] for key in ("trials", "recipe")}) == rounded(golden)


def rounded(document):
    """Return a document, from Python 3.12 on without its numbers' last digits: it adds floats up more exactly."""
    digits = 12 if sys.version_info >= (3, 12) else 17  # 17: every bit
    return json.loads(json.dumps(document), parse_float=lambda text: float(f"{float(text):.{digits}g}"))


def test_keys_come_in_the_order_of_the_design():
    document = to_json(ordinary())
    assert list(document) == [
        "schema",
        "script",
        "device",
        "environment",
        "steps",
        "breakdown",
        "outside",
        "headroom",
        "findings",
        "trials",
        "recipe",
    ]
    assert list(document["findings"][0]) == [
        "code",
        "name",
        "phase",
        "share",
        "max_speedup",
        "location",
        "message",
        "evidence",
        "fixes",
    ]


def test_what_is_no_fault_is_told_and_no_other_finding_has_that_key():
    rows = to_json(report(finding(max_speedup=3.0), finding(max_speedup=2.0, optional=True)))["findings"]
    assert [each.get("optional") for each in rows] == [None, True]


def test_the_shares_of_the_step_sum_to_one():
    assert sum(part["share"] for part in to_json(ordinary())["breakdown"]) == pytest.approx(1.0, abs=0.01)


def test_findings_come_with_the_largest_speed_up_first():
    shuffled = report(finding(max_speedup=1.1), finding(max_speedup=3.0), finding(max_speedup=2.0))
    assert [each["max_speedup"] for each in to_json(shuffled)["findings"]] == [3.0, 2.0, 1.1]


@pytest.mark.parametrize("made", [ordinary, healthy, empty, hostile, tuned, tuned_in_vain, hostile_tune])
def test_what_is_written_can_be_read(made):
    text = dumps(made())
    assert text.isascii()
    assert from_json(text) == to_json(made())


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_does_not_have_are_never_written(value):
    odd = report(finding(max_speedup=value, share=value, evidence=(Evidence("x", value, "s"),)))
    assert from_json(dumps(odd))["findings"][0]["max_speedup"] in (1e9, -1e9, 0.0)


def test_a_rate_that_is_not_known_is_null():
    assert to_json(empty())["steps"]["samples_per_s"] is None


@pytest.mark.parametrize("schema", [0, 2, "1", None, True, [1]])
def test_another_schema_is_refused_with_what_to_do(schema):
    with pytest.raises(BadRecording, match="reads schema 1") as caught:
        from_json(json.dumps({**to_json(ordinary()), "schema": schema}))
    assert "flatout report" in caught.value.advice


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"scheme": 1}', "[" * 100_000])
def test_what_is_no_report_is_refused(text):
    with pytest.raises(BadRecording):
        from_json(text)


@pytest.mark.parametrize("key", list(to_json(ordinary())))
def test_a_report_without_one_of_its_keys_is_refused(key):
    document = to_json(ordinary())
    del document[key]
    with pytest.raises(BadRecording, match="schema" if key == "schema" else f"no '{key}'"):
        from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("findings", [1]),
        ("findings", {}),
        ("steps", []),
        ("breakdown", [{"phase": "input", "ms": "3", "share": 0.1}]),
        ("breakdown", [{"phase": "input", "ms": True, "share": 0.1}]),
        ("headroom", [{}]),
        ("recipe", 3),
        ("recipe", {}),
        ("recipe", {**to_json(tuned())["recipe"], "fixes": [{}]}),
        ("recipe", {**to_json(tuned())["recipe"], "fixes": [3]}),
        ("trials", [{}]),
        ("trials", [{**to_json(tuned())["trials"][0], "results_equal": 1}]),
        ("trials", [{**to_json(tuned())["trials"][0], "speedup": True}]),
        ("trials", [{**to_json(tuned())["trials"][0], "checks": [{"name": "loss"}]}]),
        ("trials", [{**to_json(tuned())["trials"][0], "checks": [None]}]),
    ],
)
def test_values_of_the_wrong_kind_are_refused(place, value):
    with pytest.raises(BadRecording, match=place):
        from_json(json.dumps({**to_json(ordinary()), place: value}))


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(key=st.sampled_from(list(to_json(ordinary()))), value=values)
@pytest.mark.slow
def test_no_value_in_any_place_breaks_the_reader(key, value):
    try:
        from_json(json.dumps({**to_json(ordinary()), key: value}))
    except BadRecording as error:
        assert error.exit_code == 2


@given(key=st.sampled_from(list(to_json(tuned())["trials"][0])), value=values)
def test_no_value_in_a_trial_breaks_the_reader(key, value):
    whole = to_json(tuned())
    try:
        from_json(json.dumps({**whole, "trials": [{**whole["trials"][0], key: value}]}))
    except BadRecording as error:
        assert error.exit_code == 2


def test_a_trial_without_timing_says_null_and_not_zero():
    row = to_json(replace(ordinary(), trials=(trial(comparison=None, equality=None),)))["trials"][0]
    assert (row["speedup"], row["low"], row["high"], row["baseline_ms"], row["results_equal"]) == (None,) * 5
    assert row["num_pairs"] == 0


@pytest.mark.parametrize("value", [float("inf"), float("nan"), [float("-inf")], {"a": (float("nan"),)}])
def test_settings_that_json_does_not_have_are_never_written(value):
    odd = replace(ordinary(), trials=(trial(settings={"size": value}),))
    assert from_json(dumps(odd))["trials"][0]["fix"] == "loader-workers"


def test_the_place_of_a_finding_may_be_missing():
    document = to_json(report(replace(finding(), location=None)))
    assert document["findings"][0]["location"] is None
