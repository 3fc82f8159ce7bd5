"""What a module keeps of its calls in attributes, before and after; whether a part of a batch leaves the same."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from flatout.ranks.kept_values import kept_values, remembered, same_kept, since
from flatout.ranks.named_values import NamedValues


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


def test_a_tensor_that_was_written_to_in_its_place_has_changed():
    module = nn.Linear(2, 2)
    module.usage, module.stream = torch.zeros(3), torch.Generator()
    before = kept_values(module)
    assert since(before, module) == {}
    module.usage.data[1] += 1
    torch.rand(1, generator=module.stream)
    assert sorted(since(before, module)) == ["stream", "usage"]


class Leaving(nn.Module):
    def __init__(self):
        super().__init__()
        self._calls, self.level, self.told = 0, 0.5, {"sizes": [1]}
        self.usage, self.stream = torch.zeros(2), torch.Generator()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", torch.zeros(2))

    def forward(self, meter):
        self._calls, self.level, self.extra = self._calls + 1, self.level / 2, True
        self.told["sizes"].append(2)
        self.usage += torch.rand(2, generator=self.stream)
        self.count = self.count + 1
        self.last.add_(torch.rand(2))
        meter.append(1)


def test_a_call_that_does_not_count_leaves_nothing():
    module, meter = Leaving(), []
    count, streams = module.count, (torch.get_rng_state(), module.stream.get_state())
    put_back = remembered([module], [meter], NamedValues([module]))
    module(meter)
    put_back()
    assert (module._calls, module.level, module.told, meter) == (0, 0.5, {"sizes": [1]}, [])
    assert module.count is count and count == 0 and not hasattr(module, "extra")
    assert not module.usage.any() and not module.last.any()
    assert torch.equal(streams[0], torch.get_rng_state()) and torch.equal(streams[1], module.stream.get_state())
