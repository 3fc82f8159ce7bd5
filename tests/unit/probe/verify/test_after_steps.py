"""What is looked at when the compared steps are over: what a checkpoint would hold, and whole epochs of indices."""

import random

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from flatout.probe.verify import after_steps
from flatout.probe.verify.after_steps import describe_checkpoint, dry_epoch

ROWS = TensorDataset(torch.arange(10.0))


def trained():
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("most", [2**29, 0])  # written and read again, and as it is
def test_keys_types_shapes_strides_and_flags_are_told(monkeypatch, most):
    monkeypatch.setattr(after_steps, "_MOST_BYTES", most)
    model, optimizer = trained()
    told = describe_checkpoint([model, nn.BatchNorm1d(1)], [optimizer])
    assert told["Linear.0.weight"] == ["float32", [1, 2], [2, 1]]
    assert told["BatchNorm1d.1.num_batches_tracked"] == ["int64", [], []]
    group = told["optimizer 0, group 0"]
    assert (group["num_params"], group["foreach"], group["nesterov"]) == (2, False, False)
    assert "lr" not in group  # numbers are compared step by step
    assert told["optimizer 0, state 0"] == {"momentum_buffer": ["float32", [1, 2], [2, 1]]}


def test_another_layout_or_type_is_told():
    model, optimizer = trained()
    before = describe_checkpoint([model], [optimizer])
    model.weight.data = torch.ones(2, 1).t()
    assert describe_checkpoint([model], [optimizer]) != before


def epoch(seed=3, **named):
    return dry_epoch(DataLoader(ROWS, **{"batch_size": 4, **named}), seed)


def test_an_epoch_is_told_by_its_batches_samples_and_indices():
    found = epoch()
    assert (found["batches"], found["samples"]) == (3, 10)
    assert epoch(drop_last=True)["samples"] == 8
    assert epoch(batch_size=5)["indices"] != found["indices"]


def test_the_order_comes_from_the_seed_whatever_was_drawn_before():
    first = epoch(shuffle=True)
    torch.rand(3)
    random.random()
    assert epoch(shuffle=True) == first
    assert epoch(shuffle=True, seed=4) != first
    generator = torch.Generator().manual_seed(9)
    assert epoch(shuffle=True, generator=generator) == epoch(shuffle=True, generator=generator)


class Stream(IterableDataset):
    def __iter__(self):
        return iter([1])


def test_no_sample_is_fetched_and_loaders_without_indices_have_no_epoch():
    class Unreadable(TensorDataset):
        def __getitem__(self, index):
            raise AssertionError

    assert dry_epoch(DataLoader(Unreadable(torch.ones(3))), 0)["samples"] == 3
    assert dry_epoch(DataLoader(Stream()), 0) is None
    assert dry_epoch([1, 2], 0) is None
    assert epoch(batch_size=None) is None


def test_too_many_indices_are_given_up(monkeypatch):
    monkeypatch.setattr(after_steps, "_DRY_S", -1.0)
    assert epoch() is None
