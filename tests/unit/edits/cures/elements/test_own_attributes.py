"""Tensors that an object keeps for itself, and those that somebody else may have."""

import ast

import pytest
from tests.unit.edits.cures.elements.test_function_loops import loops_of

from flatout.edits.cures.elements.own_attributes import values_of_own

METER = """
import torch

class Meter:
    def update(self, labels):
        for t in labels:
            self.count[t] += 1

    def __init__(self):
        self.count = torch.zeros(3, dtype=torch.int64)
"""


def kept(folder, text):
    loops, loop = loops_of(folder, text)
    return [ast.unparse(value) for _, value in values_of_own(loops, loop.body[0].target.value)]


@pytest.mark.parametrize(
    "more",
    [
        "",
        "    def show(self):\n        print(self.count, self.count.sum(1), self.count.shape)\n",
        "    def reset(self):\n        self.count.zero_()\n        self.count[0] = 3\n",
        "    def reset(self):\n        self.count = torch.ones(3)\n",
        "    def mean(self):\n        k = self.count / self.count.sum()\n        return k, self.count[0].item()\n",
        "    def floats(self):\n        return self.count.float()\n",
        "\nm = Meter()\nprint(m.count.tolist(), float(m.count[1]), f'{m.count}')\n",
    ],
)
def test_nobody_else_has_it(tmp_path, more):
    assert kept(tmp_path, METER + more)[0] == "torch.zeros(3, dtype=torch.int64)"


@pytest.mark.parametrize(
    "more",
    [
        "    def get(self):\n        return self.count\n",
        "    def row(self):\n        return self.count[0]\n",
        "    def flat(self):\n        return self.count.view(-1)\n",
        "    def array(self):\n        return self.count.numpy()\n",
        "    def zeros(self):\n        return self.count.zero_()\n",
        "    def loss(self, w):\n        return self.count * w\n",
        "    def loss(self, w):\n        return self.count.mul(w)\n",
        "    def move(self):\n        self.count = self.count.cuda()\n        del self.count\n",
        "    def add(self, other):\n        self.count += other\n",
        "    def keep(self, name):\n        return getattr(self, name)\n",
        '    def keep(self):\n        return getattr(self, "count")\n',
        "    def keep(self):\n        return vars(self)\n",
        "    def __getattr__(self, name):\n        return 3\n",
        "    count = property()\n",
        "    @property\n    def count(self): pass\n",
        "\nclass Other(Meter):\n    def __init__(self): pass\n",
        "\nm = Meter()\nm.count = torch.ones(3)\n",
        "\nm = Meter()\nkeep(m.count)\n",
        "\nm = Meter()\nx, y = m.count, 3\n",
    ],
)
def test_somebody_else_may_have_it_or_another_be_there(tmp_path, more):
    assert kept(tmp_path, METER + more) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("class Meter:", "class Meter(Unknown):"),
        ("class Meter:", "@dataclass\nclass Meter:"),
        ("    def update", "    @staticmethod\n    def update"),
        ("for t in labels:", "for self in labels:"),
        ("def __init__", "def reset"),
        ("torch.zeros(3, dtype=torch.int64)", "torch.zeros(3)\n    def f(self):\n        return self.count.float()"),
    ],
)
def test_classes_that_may_be_more_than_they_show(tmp_path, before, after):
    assert kept(tmp_path, METER.replace(before, after)) == []
