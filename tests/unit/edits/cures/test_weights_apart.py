"""The question that edited code asks: whether weights lie apart in memory, and loading copies them."""

import ast
import functools

import numpy as np
import pytest
import torch
from tests.unit.edits.scripts import project_of
from torch import nn

from flatout.edits.cures.weights_apart import can_ask, named_question
from flatout.edits.text_changes import TextChanges


@pytest.fixture
def asks(tmp_path):
    """The function as it is written into a script."""
    text = '"""Text."""\nimport torch\nfrom torch import nn  # layers\nmodel = nn.Linear(2, 2)\n'
    project = project_of(tmp_path, train=text)
    changes = TextChanges(project.script)
    name = named_question(changes, project.script)
    space: dict = {}
    exec(changes.done(project).script.code.decode(), space)
    return space[name]


class Own(nn.Module):
    def __init__(self, *weights):
        super().__init__()
        for at, weight in enumerate(weights):
            self.register_parameter(f"w{at}", nn.Parameter(weight))


def test_usual_models_lie_apart_from_each_other(asks):
    one, two = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LSTM(4, 2)) for _ in range(2))
    assert asks(one) and asks(one, two) and not asks(one, one)
    two[0] = one[0]
    assert asks(two) and not asks(one, two)
    two.add_module("last", two[0])
    assert not asks(two)


def test_weights_that_see_parts_of_the_same_memory(asks):
    flat = torch.zeros(6)
    assert asks(Own(flat)) and not asks(Own(flat[:3], flat[3:])) and not asks(Own(flat[:3]))
    numbers = np.zeros(6, np.float32)
    assert asks(Own(torch.from_numpy(numbers[:3])), Own(torch.from_numpy(numbers[3:])))
    assert not asks(Own(torch.from_numpy(numbers[:4])), Own(torch.from_numpy(numbers[3:])))
    assert asks(Own(torch.zeros(3).double(), torch.zeros(()), torch.zeros(2, 3).t()))
    assert not asks(Own(torch.zeros(1).expand(4)))


def test_what_is_no_plain_module_may_keep_what_it_loads(asks):
    model = nn.Linear(2, 2)
    assert not asks(torch.optim.SGD(model.parameters(), lr=0.1)) and not asks(None) and not asks(model, {})
    model.load_state_dict = functools.partial(model.load_state_dict, assign=True)
    assert not asks(model)

    class Loads(nn.Linear):
        def load_state_dict(self, state):
            self.kept = state

    class Keeps(nn.Linear):
        def _load_from_state_dict(self, state, prefix, *rest):
            self.kept = state

    class Gives(nn.Linear):
        def state_dict(self):
            return {}

    for kind in (Loads, Keeps, Gives):
        assert not asks(kind(2, 2)) and not asks(nn.Sequential(kind(2, 2)))


def test_tensors_of_another_kind(asks):
    model = nn.Linear(2, 2)
    model.register_buffer("adjacent", torch.eye(2).to_sparse())
    assert not asks(model)
    assert not asks(nn.LazyLinear(2))
    assert not asks(nn.Linear(2, 2, device="meta"))


@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("import torch\n", True),
        ("import copy\nimport torch.nn as nn, torch\n", True),
        ("from torch import nn\n", False),
        ("import torch as t\n", False),
        ("x = 1\nimport torch\n", False),
        ("def f():\n    import torch\n", False),
        ("import torch\ntorch = 3\n", False),
    ],
)
def test_where_it_can_be_asked(tmp_path, text, can):
    assert can_ask(project_of(tmp_path, train=text).script) == can


def test_it_is_written_once(tmp_path):
    project = project_of(tmp_path, train="import torch\nweights_apart = 3\n")
    for number in range(2):
        changes = TextChanges(project.script)
        assert named_question(changes, project.script) == "weights_apart_2"
        if not number:
            project = changes.done(project)
    assert sum(isinstance(each, ast.FunctionDef) for each in project.script.tree.body) == 1
