"""The calls that make what is called as a layer."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.called_layers import makers

NET = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 3).to(device)
    def forward(self, x):
        return self.head(x)
"""


def made(folder, text):
    project = project_of(folder, train=text)
    call = next(
        node
        for node in ast.walk(project.script.tree)
        if isinstance(node, ast.Call) and ast.unparse(node).endswith("(x)")
    )
    return [ast.unparse(each) for _, each in makers(project, project.script, call.func)]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("", ["nn.Linear(2, 3)"]),
        ("net.head = nn.Sequential(a)\n", ["nn.Sequential(a)", "nn.Linear(2, 3)"]),
        ("net.head = other\n", []),
        ("for net.head in heads: pass\n", []),
        ("setattr(net, 'head', a)\n", []),
        ("class Big(Net):\n    def head(self, x): pass\n", []),
        ("class Big(Net):\n    head = staticmethod(f)\n", []),
    ],
)
def test_an_attribute_is_what_any_line_sets_it_to(tmp_path, more, found):
    assert made(tmp_path, NET + more) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cell = make(3)\ny = cell(x)\n", ["make(3)"]),
        ("cell = make(3)\ndef f():\n    return cell(x)\n", ["make(3)"]),
        ("cell = make(3)\ndef f(cell):\n    return cell(x)\n", []),
        ("cell = make(3)\ndef f():\n    global cell\n    cell = b\ny = cell(x)\n", []),
        ("for cell in cells:\n    y = cell(x)\n", []),
        ("y = cells[0](x)\n", []),
    ],
)
def test_a_name_is_what_its_scope_binds(tmp_path, text, found):
    assert made(tmp_path, text) == found


LAYERS = """\
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(2, 2) for _ in range(3)])
    def forward(self, x):
        return self.cells[0](x)
"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("", "", ["nn.GRUCell(2, 2)"]),
        (
            "[nn.GRUCell(2, 2) for _ in range(3)]",
            "[nn.GRUCell(2, 2), nn.RNNCell(2, 2)]",
            ["nn.GRUCell(2, 2)", "nn.RNNCell(2, 2)"],
        ),
        ("[nn.GRUCell(2, 2) for _ in range(3)]", "cells", []),
        ("nn.ModuleList(", "list(", []),
        ("    def forward", "        self.cells.append(Own())\n    def forward", []),
        ("    def forward", "        self.cells[1] = Own()\n    def forward", []),
        ("    def forward", "        change(self.cells)\n    def forward", []),
    ],
)
def test_items_of_a_list_of_modules(tmp_path, old, new, found):
    assert made(tmp_path, LAYERS.replace(old, new, 1)) == found
