"""What a recipe may ask of a fix: bounds that stand beside the fix, for every setting that is no flag."""

import inspect
import math

import pytest

from flatout.fixes.core.bounds import FOLDER, PLACE, among, within
from flatout.fixes.core.catalog import fixes
from flatout.rules.core.example import example
from flatout.schema.trial import EDITED_SOURCE


@pytest.mark.parametrize("fix", fixes(), ids=lambda fix: fix.name)
def test_every_setting_that_is_no_flag_has_bounds_and_no_other(fix):
    if fix.name == EDITED_SOURCE:  # its settings are a diff, which is sealed, and applied as a whole or not at all
        return
    _, *parameters = inspect.signature(fix.patch).parameters.values()
    assert set(fix.bounds) == {each.name for each in parameters if each.annotation is not bool}


@pytest.mark.parametrize("fix", fixes(), ids=lambda fix: fix.name)
def test_defaults_and_what_a_fix_offers_lie_within_its_bounds(fix):
    _, *parameters = inspect.signature(fix.patch).parameters.values()
    offered = [dict(each) for each in fix.choices(example(step_ms=100, input=60).run)]
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    for settings in (*offered, defaults):
        assert all(fix.bounds[name].holds(value) for name, value in settings.items() if name in fix.bounds)


@pytest.mark.parametrize("value", [-1, 513, 10**400, math.inf, -math.inf, math.nan])
def test_a_number_outside_its_bounds_is_refused_with_both_said(value):
    bound = within(0, 512)
    assert not bound.holds(value)
    assert "workers = " in bound.refusal("workers", value)
    assert "from 0 to 512" in bound.refusal("workers", value)
    assert len(bound.refusal("workers", value)) < 120


@pytest.mark.parametrize(
    "value", ["/etc", "..", "../x", "x/../../y", 'x"); f("', "a\nb", "", "~\\x", "x" * 2000, "a\0"]
)
def test_a_folder_is_one_below_the_working_folder_and_no_code(value):
    assert not FOLDER.holds(value)


def test_what_is_meant_is_taken():
    assert FOLDER.holds(".flatout/cache") and FOLDER.holds("my data/c..d")
    assert PLACE.holds("train.py:12") and not PLACE.holds("../train.py:12")
    assert among("a", "b").holds("a") and not among("a", "b").holds("ab")
