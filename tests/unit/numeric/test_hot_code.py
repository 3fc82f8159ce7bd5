"""When compiled code does the work, when Python does, and when both do and are compared."""

import numpy as np
import pytest
from tests.unit.numeric.served_code import agree, at_once, loaded, num_served, states

from flatout.numeric import hot_code

pytest.importorskip("numba")
pytestmark = pytest.mark.slow
COLLATZ = """
def f(n):
    steps = 0
    while n != 1:
        n = 3 * n + 1 if n % 2 else n // 2
        steps += 1
    return steps
"""


@pytest.fixture(autouse=True)
def told(monkeypatch):
    return at_once(monkeypatch)


def test_arrays_that_share_memory_are_left_to_python(tmp_path):
    text = "import flatout\n@flatout.compiled\ndef f(a, b):\n    for i in range(len(b)):\n        a[i + 1] = b[i] + 1\n"
    module = loaded(tmp_path, text)
    for _ in range(9):
        values = np.zeros(5)
        module.f(values, values[:4])
        assert values.tolist() == [0, 1, 2, 3, 4]
    assert num_served() == 0


def test_a_form_that_gives_something_else_is_never_used(tmp_path, told, monkeypatch):
    wrong(monkeypatch)
    text = "def f(k, n):\n    t = 0\n    for i in range(n):\n        t += k\n    return t\n"
    assert agree(tmp_path, text, (2, 3))
    assert told.left == ["gives another result than Python"]
    assert (told.used, told.differing) == ([], [])


def wrong(monkeypatch):
    from flatout.numeric.forms import Form

    right = Form.restored
    monkeypatch.setattr(Form, "restored", lambda form, result, values: right(form, result, values) + 1)


def test_a_difference_that_comes_late_ends_it_and_is_told(tmp_path, told, monkeypatch):
    text = (
        "import flatout\n@flatout.compiled\ndef f(k, n):\n    t = 0\n"
        "    for i in range(n):\n        t += k\n    return t\n"
    )
    function = loaded(tmp_path, text).f
    monkeypatch.setattr(hot_code, "_RARELY", 0)  # every call is compared
    assert [function(2, 3) for _ in range(9)] == [6] * 9
    with monkeypatch.context() as changed:
        wrong(changed)
        assert function(2, 3) == 6
    assert told.differing == ["f"]
    assert function(2, 3) == 6
    assert states()[0].left


def test_compiled_code_that_is_no_faster_is_given_up(tmp_path, told, monkeypatch):
    monkeypatch.setattr(hot_code, "_LEAST_GAIN", 1e9)
    text = "def f(k, n):\n    t = 0\n    for i in range(n):\n        t += k\n    return t\n"
    assert agree(tmp_path, text, (2, 3))
    assert told.left == ["compiled code is no faster"]


def test_nothing_is_compiled_before_python_has_spent_a_while_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(hot_code, "WORTH_S", 1e9)
    assert agree(tmp_path, COLLATZ, (27,))
    assert all(state.form is None for state in states())


@pytest.mark.parametrize(("long_s", "served"), [(0.0, 10 - hot_code.FIRST_OF_LONG), (1e9, 10 - hot_code.FIRST_PROVEN)])
def test_a_call_that_takes_long_is_made_by_python_fewer_times(tmp_path, told, monkeypatch, long_s, served):
    monkeypatch.setattr(hot_code, "LONG_S", long_s)
    monkeypatch.setattr(hot_code, "_RARELY", 1e9)
    function = loaded(tmp_path, f"import flatout\n@flatout.compiled\n{COLLATZ}").f
    assert [function(27) for _ in range(10)] == [111] * 10
    assert num_served() == served
    assert told.used == ["f"]
