"""Attributes that are set to what may be called, in the ways that people write it."""

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.set_attributes import SetAttributes

HEAD = """\
import torch
import metrics
class Net(torch.nn.Module):
    def __init__(self, given):
        super().__init__()
"""


def read(folder, line):
    return SetAttributes(project_of(folder, train=f"{HEAD}        {line}\n"))


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("self.norm = torch.nn.LayerNorm(4)", "on_objects"),
        ("self.norm = lambda x: x", "on_objects"),
        ("setattr(self, 'norm', given)", "on_objects"),
        ("self.norm = given", "on_objects"),
        ("self.norm = given if given else None", "on_objects"),
        ("metrics.norm = given", "on_modules"),
        ("torch.Tensor.norm = given", "on_modules"),
    ],
)
def test_what_may_be_called_by_that_name_is_known(tmp_path, line, where):
    assert "norm" in getattr(read(tmp_path, line), where)


@pytest.mark.parametrize(
    "line", ["self.norm = torch.zeros(3)", "self.norm = 3", "self.norm = list(given)", "norm = given"]
)
def test_values_that_nobody_calls_are_none(tmp_path, line):
    found = read(tmp_path, line)
    assert "norm" not in found.on_objects | found.on_modules
