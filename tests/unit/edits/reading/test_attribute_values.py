"""What attributes of `self` are set to, and numbers followed through names and attributes.

Modules: flatout.edits.reading.plain_numbers.
"""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.attribute_values import attribute_values, is_made_by
from flatout.edits.reading.plain_numbers import is_number

TEXT = """\
import math
import torch
from torch import nn
class A(nn.Module):
    def __init__(self, width, scale):
        self.drop = nn.Dropout(0.1)
        self.given = scale
        self.scale = width ** -0.5
        self.root = 1 / math.sqrt(64)
        self.learned = nn.Parameter(torch.ones(1))
        self.either = nn.Dropout(0.1)
        self.either = 3
    def forward(self, x):
        b, t, c = x.shape
        d = x.size(-1)
        k = d ** 0.5
        for i in range(3):
            m = i
        self.drop, self.root, self.scale, self.given, self.learned, self.either, self.above
        x, b, d, k, m, math.sqrt(d), len(x), x.size(0) ** -0.5, x.mean(), x.shape[0], 2.0, torch.tensor(2), 1 / k
class B(nn.Module):
    def __init__(self):
        self.above = nn.Dropout(0.2)
"""


@pytest.fixture
def read(tmp_path):
    project = project_of(tmp_path, train=TEXT)
    lines = [node for node in ast.walk(project.script.tree) if isinstance(node, ast.Tuple) and len(node.elts) > 4]
    found = {ast.unparse(each): each for line in lines for each in line.elts}
    return project, project.script, found


def test_the_values_are_those_of_the_class_and_else_of_all_classes(read):
    project, source, nodes = read
    values = {
        name: [ast.unparse(value) for _, value in attribute_values(project, source, nodes[name])]
        for name in ("self.drop", "self.either", "self.above", "x")
    }
    assert values == {
        "self.drop": ["nn.Dropout(0.1)"],
        "self.either": ["nn.Dropout(0.1)", "3"],
        "self.above": ["nn.Dropout(0.2)"],
        "x": [],
    }


@pytest.mark.parametrize(
    ("name", "made"), [("self.drop", True), ("self.above", True), ("self.either", False), ("x", False)]
)
def test_an_attribute_is_made_by_a_call_where_all_its_values_are(read, name, made):
    project, source, nodes = read
    assert is_made_by(project, source, nodes[name], "torch.nn.Dropout") is made


NUMBERS = {"self.root", "b", "d", "k", "math.sqrt(d)", "len(x)", "x.size(0) ** (-0.5)", "x.size(0) ** -0.5",
           "x.shape[0]", "2.0", "1 / k"}  # fmt: skip


def test_numbers_are_told_from_what_may_be_a_tensor(read):
    project, source, nodes = read
    found = {name for name, node in nodes.items() if is_number(project, source, node)}
    assert found == NUMBERS & nodes.keys()
    assert {"self.scale", "self.given", "self.learned", "m", "x.mean()", "torch.tensor(2)"} <= nodes.keys() - found
