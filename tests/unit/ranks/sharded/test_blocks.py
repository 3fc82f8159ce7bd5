"""Which modules of a model are put together one at a time."""

import copy

import torch
from torch import nn

from flatout.ranks.local_rows import HERE
from flatout.ranks.sharded.blocks import blocks_of


def num_values(module):
    return sum(one.numel() for one in module.parameters())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)) for _ in range(4))
        self.head = nn.Linear(8, 100)


def names(model):
    known = {id(one): name for name, one in model.named_modules()}
    return [known[id(one)] for one in blocks_of(model, num_values)]


def test_elements_of_lists_and_leaves_are_blocks():
    assert names(Net()) == ["embedding", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "head"]


def test_a_large_element_is_taken_apart():
    model = nn.ModuleDict({"large": nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), "small": nn.Linear(8, 8)})
    assert names(model) == ["large.0", "large.1", "small"]


def test_what_is_compiled_or_a_script_is_not_taken_apart():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(8, 8))
    assert blocks_of(torch.jit.script(model), num_values) == []
    assert blocks_of(torch.compile(model), num_values) == []
    assert names(nn.ModuleDict({"a": torch.jit.script(model), "b": nn.Linear(8, 8)})) == ["a", "b"]


def test_one_block_is_whole_in_a_call_and_two_in_a_backward_pass(alone):
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
    torch.optim.SGD(model.parameters(), 0.1)
    one = 4 * 64 * 64
    alone.values.largest = 0
    HERE.whole = True
    loss = model(torch.randn(3, 64)).sum()
    HERE.whole = False
    assert alone.values.largest == one
    copy.deepcopy(model).double()
    alone.values.let_go()
    alone.values.largest = 0
    with alone.sharding.around([model]):
        loss.backward()
    assert alone.values.largest == 2 * one
    assert not any(alone.values.live.of(layer.weight).whole for layer in model)
    assert all(alone.values.live.of(layer.weight).grad is None and layer.weight.grad is not None for layer in model)


def test_modules_without_shared_out_parameters_are_none():
    assert blocks_of(Net(), lambda module: 0) == []
