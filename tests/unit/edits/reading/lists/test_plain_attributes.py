"""Attributes whose reading runs no code."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.lists.plain_attributes import is_plain_attribute

CLASS = """\
from torch.utils.data import Dataset, Sampler
class Data(Dataset):
    def __init__(self, x, n=3):
        super().__init__()
        self.n = n
        self.x = list(x) * self.n
    def look(self, ys):
        return self.x
"""


def is_plain(folder, text, **others):
    project = project_of(folder, train=text, **others)
    function = next(each for _, each in project.functions["look"])
    node = next(each for each in ast.walk(function) if isinstance(each, ast.Attribute))
    return is_plain_attribute(project, project.script, node, function)


@pytest.mark.parametrize(
    "more",
    [
        "", "print(Data([1]).x)\n", "class Other:\n    def __init__(self):\n        self.x = 3\n",
        "class Other:\n    y = property(f)\n", "setattr(Data([1]), 'y', 2)\n", "print(type(3), x.type())\n",
    ],
)  # fmt: skip
def test_a_value_that_each_constructor_sets(tmp_path, more):
    assert is_plain(tmp_path, CLASS + more)
    assert is_plain(tmp_path, CLASS.replace("(Dataset)", "") + more)


@pytest.mark.parametrize(
    "more",
    [
        "class B(Data):\n    pass\n", "class B:\n    @property\n    def x(self): pass\n", "class B:\n    x = f()\n",
        "class B:\n    if f:\n        def x(self): pass\n", "class B:\n    from a import x\n",
        "class B:\n    def __getattr__(self, n): pass\n", "class B:\n    __slots__ = ()\n",
        "setattr(Data, 'x', 1)\n", "setattr(Data, n, 1)\n", "put = setattr\n", "d.x = 1\n", "del d.x\n",
        "Data.x = 1\n", "d.__class__ = B\n", "Data.look(B())\n", "type(d).look(B())\n", "type('B', (Data,), {})\n",
        "object.__setattr__(d, 'x', 1)\n", "d = Data.__new__(Data)\n", "Dataset.__getattr__ = f\n",
    ],
)  # fmt: skip
def test_what_may_act_where_it_is_read(tmp_path, more):
    assert not is_plain(tmp_path, CLASS + more)
    assert not is_plain(tmp_path, "import other\n" + CLASS, other="from train import *\n" + more)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(Dataset)", "(Unknown)"), ("(Dataset)", "(Dataset, metaclass=M)"), ("class Data", "@fit\nclass Data"),
        ("        self.x", "        if x: self.x"), ("        self.x", "        f(self)\n        self.x"),
        ("        self.x", "        self.look(1)\n        self.x"), ("        self.x",
        "        if x: return\n        self.x"),
        ("self.x = list(x) * self.n", "self.y = 1"), ("    def look(self", "    def look(this, self"),
        ("        return", "        self = ys\n        return"), ("def look(self, ys)",
        "@classmethod\n    def look(self, ys)"),
        ("def look", "def __getstate__(self):\n        return {}\n    def look"), ("return self.x", "return ys.x"),
        ("return self.x", "return self.x.x"), ("__init__", "setup"), ("x", "__x"),
    ],
)  # fmt: skip
def test_classes_that_are_not_known(tmp_path, old, new):
    assert old in CLASS
    assert not is_plain(tmp_path, CLASS.replace(old, new))
