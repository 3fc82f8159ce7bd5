"""Loops that train, told from those that only look; and classes made from others.

Modules: flatout.edits.reading.user_classes.
"""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.training_loops import is_without_gradients, loops, switches_gradients, trains
from flatout.edits.reading.user_classes import class_around, names_below


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for x in l:\n    f(x).backward()", [True]),
        ("for x in l:\n    f(x)", [False]),
        ("while True:\n    torch.autograd.grad(y, w)", [True]),
        ("for x in l:\n    self.grad(x)", [False]),
        ("for x in l:\n    step(x)\ndef step(x):\n    inner(x)\ndef inner(x):\n    f(x).backward()", [True]),
        ("for x in l:\n    a(x)\ndef a(x):\n    b(x)\ndef b(x):\n    a(x)", [False]),
        ("[f(x).backward() for x in l]", [True]),
        ("[f(x) for x in l]", [False]),
        (
            "for e in range(3):\n    for x in l:\n        f(x).backward()\n    for x in t:\n        f(x)",
            [True, True, False],
        ),
    ],
)
def test_a_loop_trains_where_a_backward_pass_is_made_in_it_or_below(tmp_path, text, expected):
    project = project_of(tmp_path, train=text)
    found = [(loop, trains(project, source, loop)) for source, loop in loops(project)]
    assert sorted(told for _, told in found) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "off"),
    [
        ("with torch.no_grad():\n    here()", True),
        ("with torch.inference_mode(), open(p):\n    here()", True),
        ("with open(p):\n    here()", False),
        ("@torch.no_grad()\ndef f():\n    here()", True),
        ("with torch.no_grad():\n    def f():\n        here()", False),  # called later
        ("here()", False),
    ],
)
def test_where_gradients_are_switched_off(tmp_path, text, off):
    source = project_of(tmp_path, train=text).script
    (call,) = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and ast.unparse(n) == "here()"]
    assert is_without_gradients(source, call) is off


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        ("torch.set_grad_enabled(train)", True),
        ("torch.autograd.set_grad_enabled(False)", True),
        ("torch.no_grad().__enter__()", True),
        ("with torch.set_grad_enabled(train):\n    f()", False),
        ("with torch.no_grad():\n    f()", False),
    ],
)
def test_what_switches_gradients_for_all_that_follows(tmp_path, text, switches):
    assert bool(switches_gradients(project_of(tmp_path, train=text))) is switches


CLASSES = """
class A: pass
class B(A): pass
class C(rows.B):
    class D:
        def f(self):
            here()
class E(X): pass
here()
"""


def test_classes_below_another_are_found_however_far_down(tmp_path):
    project = project_of(tmp_path, train=CLASSES)
    assert names_below(project, "A") == {"A", "B", "C"}
    assert names_below(project, "X") == {"X", "E"}


def test_the_class_around_a_node_is_the_innermost(tmp_path):
    source = project_of(tmp_path, train=CLASSES).script
    calls = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call)]
    around = [class_around(source, call) for call in sorted(calls, key=lambda n: n.lineno)]
    assert [each and each.name for each in around] == ["D", None]
