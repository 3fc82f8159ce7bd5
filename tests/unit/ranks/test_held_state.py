"""Objects that code may write to: what is found from a root, what has changed, and that it is put back."""

import random
from collections import deque
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from flatout.ranks.held_state import HeldState, same_tensors
from flatout.ranks.named_values import is_own

CHANGES = {
    "a list": lambda one: one["rows"].append(3),
    "an item": lambda one: one["rows"].__setitem__(0, 5),
    "a set": lambda one: one["names"].add("b"),
    "a table": lambda one: one.update(more=1),
    "a queue that is full": lambda one: one["last"].append(9),
    "a list in a field": lambda one: one["meter"].sizes.append(1),
    "a field": lambda one: setattr(one["meter"], "total", 1),
    "a tensor": lambda one: one["counts"][0].add_(1),
    "values of a tensor": lambda one: one["counts"][0].data.add_(1),
    "an array": lambda one: one["array"].__setitem__(1, 7),
    "what a method is bound to": lambda one: one["meter"].sizes.append(4),
}


def root():
    return {
        "rows": [1, 2], "names": {"a"}, "last": deque([1, 2], maxlen=2), "counts": (torch.tensor([0.0, torch.nan]),),
        "meter": SimpleNamespace(total=0, sizes=[]), "array": np.arange(3), "layer": nn.Linear(2, 2),
    }  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_and_put_back(name):
    one, untouched = root(), root()
    held = HeldState([one], is_own)
    assert held.put_back() == ""
    CHANGES[name](one)
    assert held.put_back() != ""
    assert repr({**one, "layer": 0}) == repr({**untouched, "layer": 0})
    assert held.put_back() == ""


def test_of_a_long_list_the_length_is_told():
    long = [0] * 20_000
    held = HeldState([long], is_own)
    long.append(1)
    assert held.put_back() == "a list" and len(long) == 20_000


def test_generators_are_found_also_behind_a_function_that_is_bound_to_one():
    streams = torch.Generator(), random.Random(1), np.random.default_rng(2), np.random.RandomState(3)
    roots = [streams[0], streams[1].random, {"x": [partial(int, streams[2])]}, SimpleNamespace(stream=streams[3])]
    assert [id(one) for one in HeldState(roots, is_own).generators] == list(map(id, streams))


def test_tensors_are_the_same_where_their_values_are():
    nan = torch.tensor([1.0, torch.nan])
    assert same_tensors(nan, nan.clone()) and not same_tensors(nan, torch.tensor([1.0, 2.0]))
