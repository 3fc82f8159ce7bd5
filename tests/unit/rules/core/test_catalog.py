"""Every rule fires where it should, stays quiet where it should, and says what a reader needs."""

import re

import pytest

from flatout.fixes.core.catalog import fixes
from flatout.rules import catalog
from flatout.schema.phase import Phase

HEADINGS = ["## What it measures", "## Why it matters", "## What to do", "## When it is wrong"]
FIRES = [(rule, example) for rule in catalog() for example in rule.fires_on]
QUIET = [(rule, example) for rule in catalog() for example in rule.quiet_on]

FAMILIES = {"IN": 19, "TR": 5, "SY": 2, "HO": 4, "CO": 36, "ME": 7, "DI": 7, "EP": 7, "MS": 4}


def name_of(value):
    return getattr(value, "code", "")


def test_the_rules_of_the_design_are_there_in_the_order_of_their_codes():
    assert [rule.code for rule in catalog()] == sorted(
        f"{name}{i:03d}" for name, count in FAMILIES.items() for i in range(1, count + 1)
    )


@pytest.mark.parametrize(("rule", "example"), FIRES, ids=name_of)
@pytest.mark.slow
def test_a_rule_fires_on_its_examples(rule, example):
    finding = rule.check(example.run, example.breakdown, example.headroom)
    assert finding is not None
    assert (finding.code, finding.name) == (rule.code, rule.name)
    assert 0 <= finding.share <= 1
    assert finding.max_speedup >= 1
    assert isinstance(finding.phase, Phase)


@pytest.mark.parametrize(("rule", "example"), QUIET, ids=name_of)
@pytest.mark.slow
def test_a_rule_stays_quiet_on_its_counterexamples(rule, example):
    assert rule.check(example.run, example.breakdown, example.headroom) is None


@pytest.mark.parametrize(("rule", "example"), FIRES, ids=name_of)
@pytest.mark.slow
def test_a_message_carries_numbers_with_their_n_and_no_command_of_ours(rule, example):
    message = rule.check(example.run, example.breakdown, example.headroom).message
    assert re.search(r"\d", message)
    assert re.search(r"n=\d", message)
    assert "flatout" not in message
    assert "!" not in message
    assert message.isascii()


@pytest.mark.parametrize(("rule", "example"), FIRES, ids=name_of)
@pytest.mark.slow
def test_evidence_is_named_and_finite(rule, example):
    evidence = rule.check(example.run, example.breakdown, example.headroom).evidence
    assert evidence
    assert all(part.name and abs(float(part.value)) < float("inf") for part in evidence)


@pytest.mark.parametrize("rule", catalog(), ids=name_of)
@pytest.mark.slow
def test_a_page_begins_with_the_fault_and_has_the_four_headings(rule):
    assert re.findall(r"^## .*$", rule.page, re.MULTILINE) == HEADINGS
    assert rule.summary.endswith(".")
    assert "\n" not in rule.summary
    assert len(rule.page) < 2500


@pytest.mark.parametrize("rule", catalog(), ids=name_of)
@pytest.mark.slow
def test_a_rule_has_two_examples_of_each_kind_and_its_file_is_named_after_it(rule):
    assert len(rule.fires_on) >= 2
    assert len(rule.quiet_on) >= 2
    assert rule.check.__module__ == f"flatout.rules.{rule.code.lower()}_{rule.name.replace('-', '_')}"


NEED_ANOTHER_MACHINE = ["CO018", "CO021", "IN015", "MS004"]
"""A disk that is not memory; a GPU fed by one process among several, or hot."""


def test_only_rules_that_no_machine_of_ours_can_confirm_are_in_preview():
    assert [rule.code for rule in catalog() if rule.preview] == NEED_ANOTHER_MACHINE


@pytest.mark.parametrize("rule", catalog(), ids=name_of)
def test_a_rule_has_a_cure_or_says_why_it_has_none(rule):
    cured = bool(rule.edits) or any(rule.code in fix.addresses for fix in fixes())
    assert cured + bool(rule.no_cure) == 1


@pytest.mark.parametrize("rule", [rule for rule in catalog() if rule.no_cure], ids=name_of)
def test_the_reason_for_no_cure_is_one_sentence(rule):
    assert re.fullmatch(r"[A-Z][^.!]*\.", rule.no_cure)
    assert rule.no_cure.isascii()
