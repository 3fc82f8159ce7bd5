"""Batches of which everything is kept come the shortest way, with the same bits, and leave it where it does not fit."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout import compile_loader
from flatout.pipeline.gathering import gathering


class Rows(Dataset):
    """Samples that a look at them cannot tell to lie in memory."""

    def __init__(self, sample, number=20):
        self.sample, self.number = sample, number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        if not -self.number <= index < self.number:
            raise IndexError(f"no sample {index}")
        return self.sample(index % self.number)


SAMPLES = {
    "two": lambda index: (torch.full((3, 4), float(index)), index),
    "one": lambda index: torch.arange(5) + index,
    "named": lambda index: {"x": torch.ones(2) * index, "name": f"item {index}", "y": {"z": index / 7}},
    "channels last": lambda index: torch.full((1, 3, 4, 4), float(index)).to(memory_format=torch.channels_last)[0],
    "large": lambda index: torch.full((2**17,), float(index)),
}


def cache_of(loader):
    return loader._kept.of(loader._plain)


def batches_of(loader):
    torch.manual_seed(3)
    return [batch for _ in range(3) for batch in loader]


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.stride() == other.stride() and one.dtype == other.dtype
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_gathered_is_what_the_loader_gives(name):
    def loader():
        return DataLoader(Rows(SAMPLES[name]), batch_size=6, shuffle=True)

    compiled = compile_loader(loader())
    made = batches_of(compiled)
    cache = cache_of(compiled)
    assert cache._gather is not None  # the last pass took it
    assert cache.served == 8
    assert all(map(same, batches_of(loader()), made))


def test_what_is_handed_out_is_memory_of_its_own():
    compiled = compile_loader(DataLoader(Rows(SAMPLES["two"]), batch_size=6))
    batches_of(compiled)
    for x, y in compiled:
        x.zero_()
        y.zero_()
    assert next(y.tolist() for _, y in compiled) == [0, 1, 2, 3, 4, 5]
    assert float(next(iter(compiled))[0][2, 0, 0]) == 2.0


class Ordered:
    """A batch sampler with an order that changes."""

    def __init__(self, order):
        self.order = order

    def __iter__(self):
        return iter(self.order)

    def __len__(self):
        return len(self.order)


def test_an_index_that_only_the_data_set_understands_is_its_own_affair():
    sampler = Ordered([[0, 1], [2, 3]])
    compiled = compile_loader(DataLoader(Rows(SAMPLES["one"], 4), batch_sampler=sampler))
    for _ in range(3):
        assert [batch[:, 0].tolist() for batch in compiled] == [[0, 1], [2, 3]]
    assert gathering(cache_of(compiled).keeping) is not None
    sampler.order = [[0, -1], [1, 2]]
    assert [batch[:, 0].tolist() for batch in compiled] == [[0, 3], [1, 2]]
    sampler.order = [[0, 9]]
    with pytest.raises(IndexError, match="no sample 9"):
        list(compiled)


def test_nothing_is_gathered_before_everything_is_there():
    compiled = compile_loader(DataLoader(Rows(SAMPLES["two"]), batch_size=6))
    walked = iter(compiled)
    next(walked)
    assert gathering(cache_of(compiled).keeping) is None
    assert sum(len(batch[1]) for batch in walked) == 14
    assert gathering(cache_of(compiled).keeping) is not None
