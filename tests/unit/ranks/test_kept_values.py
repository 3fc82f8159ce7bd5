"""What a module keeps of its calls in attributes, before and after; whether a part of a batch leaves the same."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from flatout.ranks.kept_values import kept_values, same_kept, since


def test_tensors_arrays_and_numbers_that_attributes_hold_are_found():
    module = nn.Sequential(nn.Linear(2, 2))
    before = set(kept_values(module))
    module[0].mask, module.state, module.name = torch.ones(1), {"a": [torch.ones(2), 3]}, "x"
    module.counts = np.arange(3)
    found = kept_values(module)
    assert sorted(set(found) - before) == ["0.mask", "counts", "state"]
    assert found["state"][1] == 3


class Meter:
    def __init__(self):
        self.sum, self.values = 0.0, [1, 2]


def test_objects_of_the_script_are_looked_into():
    module = nn.Linear(2, 2)
    module.meter = Meter()
    before = kept_values(module)
    assert before["meter"] == [0.0, 1, 2]
    module.meter.values.append(3)
    assert since(before, module) == {"meter": [0.0, 1, 2, 3]}


def test_what_has_changed_since_is_found_also_in_an_array_that_was_written_to():
    module = nn.Linear(2, 2)
    module.counts, module.level, module.still = np.zeros(3), 0.5, [1, 2]
    before = kept_values(module)
    assert since(before, module) == {}
    module.counts[1] += 1
    module.level = 0.75
    module.last = torch.ones(2)
    assert sorted(since(before, module)) == ["counts", "last", "level"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (0.5, 0.5 + 1e-8, True),
        (0.5, 0.51, False),
        (math.nan, math.nan, True),
        (3, 3, True),
        (3, 4, False),
        (3, 3.0, False),
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2), torch.ones(3), False),
        (torch.ones(2), 1, False),
        (torch.ones(2, requires_grad=True), torch.ones(2), False),
        (np.arange(3), np.arange(3), True),
        (np.arange(3), np.arange(4), False),
    ],
)
def test_what_a_part_leaves_is_held_against_what_the_whole_leaves(one, other, same):
    assert same_kept([one], [other]) is same
    assert not same_kept([one], [other, other])
