"""Warnings seen whatever the filters make of them, and left to the filters."""

import sys
import types
import warnings

import numpy as np
import pytest

from flatout.kept.warned_calls import Warnings, has_shown, has_warned


@pytest.mark.parametrize("action", ["ignore", "always", "default", "once", "module"])
def test_a_warning_is_seen_and_goes_where_it_went(action):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter(action)
        filters = list(warnings.filters)
        with Warnings() as seen:
            warnings.warn("something", stacklevel=1)
        assert seen.seen and warnings.filters == filters
        assert len(shown) == (action != "ignore")
        with Warnings() as other:
            np.ones(3)
        assert not other.seen


def test_a_warning_of_compiled_code_and_one_that_is_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = Warnings()
        with pytest.raises(RuntimeWarning), seen:
            np.array([1.0]) / np.array([0.0])
        assert seen.seen
        assert all(each[1] is not seen for each in warnings.filters)


def test_somebodys_own_warn_asks_no_filters(monkeypatch):
    monkeypatch.setattr(warnings, "warn", lambda *args, **kwargs: None)
    assert Warnings().seen


def test_what_was_shown_before_is_told_by_its_module(monkeypatch):
    made = types.ModuleType("told_before.inner")
    monkeypatch.setitem(sys.modules, "told_before.inner", made)
    made.__warningregistry__ = {"version": 3}
    assert not has_warned("told_before")
    made.__warningregistry__["text", UserWarning, 3] = True
    assert has_warned("told_before") and has_warned("other", "told_before.inner") and not has_warned("told")


@pytest.mark.parametrize(("at", "told"), [(1, True), (0, True), (900, False)])
def test_what_was_shown_at_a_line_of_code_that_ran_is_told(at, told, monkeypatch):
    def ran():
        return np.ones(3)

    registry = {"version": 3, ("text", UserWarning, at and ran.__code__.co_firstlineno + at): True}
    assert has_shown({ran.__code__: {"__warningregistry__": registry}}, set()) is told
    assert not has_shown({ran.__code__: {}}, {ran.__code__})
    monkeypatch.setitem(globals(), "__warningregistry__", registry)
    assert has_shown({}, {ran.__code__}) is told
