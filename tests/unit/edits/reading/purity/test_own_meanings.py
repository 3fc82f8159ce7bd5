"""Operators, names and threads by which other code runs than the text says."""

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.own_meanings import own_names, own_operator, runs_meanwhile


@pytest.mark.parametrize(
    ("text", "operator", "module"),
    [
        ("import torch\nclass A:\n    def __init__(self):\n        self.a = 1\n", "", ""),
        ("class A:\n    def __matmul__(self, x):\n        pass\n", "__matmul__", ""),
        ("class A:\n    __radd__ = lambda self, x: x\n", "__radd__", ""),
        ("from concurrent.futures import Future\n", "", "concurrent.futures"),
        ("import os, threading\n", "", "threading"),
    ],
)
def test_operators_and_modules(tmp_path, text, operator, module):
    project = project_of(tmp_path, train=text)
    assert (own_operator(project), runs_meanwhile(project)) == (operator, module)


def test_names_of_functions_and_of_what_may_be_properties(tmp_path):
    text = "class A:\n    n = 3\n    rate = property(f)\n    @property\n    def size(self):\n        pass\n"
    assert own_names(project_of(tmp_path, train=f"def f():\n    pass\n{text}")) == {"f", "rate", "size"}
