"""Uses of a tensor that only compute with it, followed through names, functions and layers."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.computed_uses import only_computed

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
    def forward(self, x, h):
        return torch.tanh(self.fc(x) + h)
class Kept(nn.Module):
    def forward(self, x):
        self.last = x
def half(v, other=0):
    return v / 2 + other
cell, kept, act = Cell(), Kept(), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
"""


def computes(folder, text):
    project = project_of(folder, train=HEAD + text)
    part = next(each for each in ast.walk(project.script.tree) if isinstance(each, ast.Name) and each.id == "part")
    return only_computed(project, project.script, part)


@pytest.mark.parametrize(
    "line",
    [
        "y = part + 1", "y = part > 3", "y = part.sum()", "y = part.view(-1).exp()", "y = F.relu(part)",
        "y = cell(part, h)",
        "y = act(part)", "y = half(part)", "y = half(1, other=part)", "y = torch.cat([part, h])", "p = part\ny = p * p",
        "p = part.t()\np = p.view(-1)\ny = p.mean()", "y = part[0] * 2", "print(part.shape)", "y = 0\ny += part",
    ],
)  # fmt: skip
def test_what_only_computes(tmp_path, line):
    assert computes(tmp_path, line)


@pytest.mark.parametrize(
    "line",
    [
        "keep(part)", "y = [part]", "y = part is None", "a.b = part", "y = kept(part)", "part.add_(1)", "part[0] = 1",
        "p = part\np += 1", "p = part.view(-1)\np.zero_()", "y = torch.add(part, 1, out=h)",
        "y = F.dropout(part)\ny += 1",
        "y = F.relu(part, inplace=True)", "y = f'{part}'",
        "print('%s' % part)", "p = q = part", "y = lambda: part", "part += 1",
        "y = not part",
        "y = half(*part)", "y = part.grad",
    ],
)  # fmt: skip
def test_what_may_write_or_keep(tmp_path, line):
    assert not computes(tmp_path, line)


@pytest.mark.parametrize(
    "line", ["cell.forward = f", "Cell.forward = f", "cell.__class__ = Other", "tools.half = f", "cell.fc.forward = f"]
)
def test_code_that_is_replaced_may_do_anything(tmp_path, line):
    assert computes(tmp_path, "y = half(part)\nz = part\n")
    call = "half(part)" if "half" in line else "cell(part, h)"
    assert not computes(tmp_path, f"{line}\ny = {call}\n")
