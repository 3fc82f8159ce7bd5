"""How often each line of the user's code runs in one step."""

import sys
from threading import get_ident
from types import SimpleNamespace

import pytest

from flatout.probe.forward import line_counts
from flatout.probe.forward.line_counts import _AT_STEP, LineCountWatch


def square(number):
    return number * number  # CALLED


def step(turns):
    total = 0
    for number in range(turns):
        total += square(number)
    return total, [square(number) for number in range(turns)]


def log(possible=False):
    return SimpleNamespace(tracing=SimpleNamespace(possible=possible), thread=get_ident(), tracker=SimpleNamespace())


def counted(turns=30, steps=_AT_STEP + 4, watch=None):
    watch = watch or LineCountWatch(log())
    for number in range(2, steps):
        step(turns)
        watch.step(None, number)
    watch.stop()
    return {(each.place.function, each.place.line): each.count for each in watch.facts() if each.place.file == __file__}


@pytest.fixture(autouse=True)
def _no_other_trace():
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def test_lines_are_counted_in_one_step():
    found = counted()
    line = square.__code__.co_firstlineno + 1
    assert found["square", line] == 60
    assert found["step", step.__code__.co_firstlineno + 3] == 30


def test_nothing_is_traced_before_and_after():
    watch = LineCountWatch(log())
    watch.step(None, _AT_STEP - 1)
    assert sys.gettrace() is None
    counted(watch=watch)
    assert sys.gettrace() is None
    assert sys._getframe().f_trace is None


def test_somebody_elses_trace_stays():
    def trace(frame, event, argument):
        return None

    sys.settrace(trace)
    found = counted()
    assert sys.gettrace() is trace
    assert not found


def test_where_code_is_compiled_nothing_is_traced():
    assert not counted(watch=LineCountWatch(log(possible=True)))


def test_a_step_of_very_many_lines_is_not_followed_to_its_end(monkeypatch):
    monkeypatch.setattr(line_counts, "_MOST_RUNS", 50)
    assert not counted()
    assert sys.gettrace() is None
