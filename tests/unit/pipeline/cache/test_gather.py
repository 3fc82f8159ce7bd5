"""Batches of which everything is kept come the shortest way, with the same bits, and leave it where it does not fit."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from tests.torchvision_stub import torchvision
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from flatout import compile_loader
from flatout.pipeline.cache import cache_stage

v1 = torchvision.transforms


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
    assert cache.strategy.gather is not None  # the last pass took it
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
    assert cache_of(compiled).kept_rows.gather is not None
    sampler.order = [[0, -1], [1, 2]]
    assert [batch[:, 0].tolist() for batch in compiled] == [[0, 3], [1, 2]]
    sampler.order = [[0, 9]]
    with pytest.raises(IndexError, match="no sample 9"):
        list(compiled)


def test_nothing_is_gathered_before_everything_is_there():
    compiled = compile_loader(DataLoader(Rows(SAMPLES["two"]), batch_size=6))
    walked = iter(compiled)
    next(walked)
    assert cache_of(compiled).kept_rows.gather is None
    assert sum(len(batch[1]) for batch in walked) == 14
    assert cache_of(compiled).kept_rows.gather is not None


class Loaded(Dataset):
    """Images of bytes that lie in memory, which only reading them shows."""

    def __init__(self, transform, shape=(9, 9, 3), number=40):
        self.pixels = np.random.RandomState(1).randint(0, 256, (number, *shape), dtype=np.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.pixels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.pixels[index])), index


SCALED = v1.Compose([v1.ToTensor(), v1.Normalize((0.5,), (0.2,))])


@pytest.fixture
def bytes_kept(monkeypatch):
    """Keep images as they are read, however fast others would be."""
    monkeypatch.setattr(cache_stage, "_LITTLE_MEMORY", 0)
    monkeypatch.setattr(cache_stage, "_TIMES_AS_LONG", 1e9)


@pytest.mark.usefixtures("bytes_kept", "two_threads")
@pytest.mark.parametrize("torchs_threads", [False, True])
@pytest.mark.parametrize("own_threads", [False, True])
@pytest.mark.parametrize("shape", [(9, 9, 3), (28, 28)])
@pytest.mark.slow
def test_bytes_are_looked_up_where_they_are_kept(shape, own_threads, torchs_threads, monkeypatch):
    for module in ("native_steps", "row_operations"):
        monkeypatch.setattr(f"flatout.pipeline.compile.{module}.TORCHS_BYTES", 0 if torchs_threads else 2**40)
    monkeypatch.setattr("flatout.pipeline.compile.native_steps._THREAD_BYTES", 1 if own_threads else 2**40)
    compiled = compile_loader(DataLoader(Loaded(SCALED, shape), batch_size=16, shuffle=True))
    made = batches_of(compiled)
    cache = cache_of(compiled)
    assert cache.strategy.gather is not None
    assert cache.kept_rows.compiler.stage == 0
    assert cache.kept_rows.store.num_bytes == 40 * (math.prod(shape) + 8)
    assert all(map(same, batches_of(DataLoader(Loaded(SCALED, shape), batch_size=16, shuffle=True)), made))


@pytest.mark.usefixtures("bytes_kept")
def test_another_default_type_of_numbers_is_followed_from_its_first_batch_on():
    compiled = compile_loader(DataLoader(Loaded(SCALED), batch_size=20))
    batches_of(compiled)
    walked = iter(compiled)
    assert next(walked)[0].dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert same(next(walked), list(DataLoader(Loaded(SCALED), batch_size=20))[1])
    finally:
        torch.set_default_dtype(torch.float32)


def in_memory():
    pixels = torch.from_numpy(np.random.RandomState(2).randint(0, 256, (40, 28, 28), dtype=np.uint8))
    dataset = torchvision.datasets.MNIST.__new__(torchvision.datasets.MNIST)
    dataset.data, dataset.targets = pixels, torch.arange(40) % 10
    dataset.transform, dataset.target_transform = SCALED, None
    return dataset


ARRAYS = {
    "images": in_memory,
    "tensors": lambda: TensorDataset(torch.arange(120.0).view(40, 3), torch.arange(40), torch.arange(40) / 7),
    "part": lambda: Subset(in_memory(), list(range(39, 0, -2))),
    "part of a part": lambda: Subset(Subset(in_memory(), range(3, 40)), [5, 0, 5, 30, -1]),
}


@pytest.mark.usefixtures("bytes_kept")
@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.slow
def test_what_lies_in_arrays_is_gathered_there_and_nothing_is_kept(name):
    compiled = compile_loader(DataLoader(ARRAYS[name](), batch_size=6, shuffle=True))
    made = batches_of(compiled)
    cache = cache_of(compiled)
    assert cache.kept_rows.direct
    assert cache.kept_rows.store is None
    assert cache.strategy.gather is not None
    assert all(map(same, batches_of(DataLoader(ARRAYS[name](), batch_size=6, shuffle=True)), made))


@pytest.mark.usefixtures("bytes_kept")
def test_what_is_written_to_the_arrays_is_in_the_next_batch():
    compiled = compile_loader(DataLoader(in_memory(), batch_size=20))
    walked = iter(compiled)
    next(walked)
    compiled.dataset.data[30] = 255
    assert float(next(walked)[0][10].min()) == float(SCALED(Image.new("L", (1, 1), 255)))
