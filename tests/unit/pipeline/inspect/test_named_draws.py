"""Data sets whose code names random draws are read in the script's order, however seldom they draw."""

import random
import time
from random import choice as pick

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from flatout import compile_loader
from flatout.pipeline.inspect.named_draws import names_draws


class Plain(Dataset):
    def __init__(self, number=150):
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        return torch.tensor(float(index))


class PythonDraws(Plain):
    def __getitem__(self, index):
        return torch.tensor(index + (random.random() if index % 50 == 7 else 0.0))


class NumpyDraws(Plain):
    def __getitem__(self, index):
        return torch.tensor(index + (np.random.rand() if index % 50 == 7 else 0.0))


class TorchDraws(Plain):
    def __getitem__(self, index):
        return torch.randn(()) if index % 50 == 7 else torch.tensor(float(index))


class RenamedDraws(Plain):
    def __getitem__(self, index):
        return torch.tensor(float(pick((index, index + 1))))


class DrawsInAMethod(Plain):
    def __getitem__(self, index):
        return self.read(index)

    def read(self, index):
        return torch.tensor(float(index)).uniform_() if index % 50 == 7 else torch.tensor(float(index))


class DrawsInAFunction(Plain):
    def __init__(self, number=150):
        super().__init__(number)
        self.read = lambda index: torch.tensor(index + np.random.randint(2))

    def __getitem__(self, index):
        return self.read(index)


class ShufflesElsewhere(Plain):
    """A method that no sample is read with."""

    def shuffle(self):
        random.shuffle(self.order)


class DrawsFromItsOwn(Plain):
    """A generator for each sample."""

    def __getitem__(self, index):
        return torch.tensor(np.random.RandomState(index).rand())


class Noise:
    def __call__(self, value):
        return value + random.random()


class DrawsInWhatItHolds(Plain):
    def __init__(self, number=150):
        super().__init__(number)
        self.noise = Noise()

    def __getitem__(self, index):
        return self.noise(torch.tensor(float(index))) if index % 50 == 7 else torch.tensor(float(index))


class ImportsInside(Plain):
    def __getitem__(self, index):
        import random as renamed

        return torch.tensor(index + renamed.uniform(0, 1))


class Settings(dict):
    """Attributes are keys, so that looking for another one raises KeyError."""

    def __getattr__(self, name):
        return self[name]


settings = Settings(size=3.0)


class ReadsSettings(Plain):
    def __getitem__(self, index):
        return torch.tensor(index + settings.size)


def split(number):
    return np.random.permutation(number)


class SplitsAtFirst(Plain):
    """A function that draws, called before anything is read."""

    def __init__(self, number=150):
        super().__init__(number)
        self.order = split(number)


DRAWING = [
    DrawsInWhatItHolds,
    ImportsInside,
    PythonDraws,
    NumpyDraws,
    TorchDraws,
    RenamedDraws,
    DrawsInAMethod,
    DrawsInAFunction,
]


@pytest.mark.parametrize("kind", DRAWING)
def test_a_draw_is_named(kind):
    assert names_draws(kind())


@pytest.mark.parametrize("kind", [Plain, ShufflesElsewhere, DrawsFromItsOwn, ReadsSettings, SplitsAtFirst])
def test_no_draw_is_named(kind):
    assert not names_draws(kind())


def waiting(kind):
    class Waiting(kind):
        def __getitem__(self, index):
            time.sleep(0.002)
            return super().__getitem__(index)

    return Waiting()


def walked(loader):
    """Return all batches, and numbers that a script draws between them."""
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    return [(batch, torch.rand(()).item(), np.random.rand(), random.random()) for _ in range(2) for batch in loader]


@pytest.mark.parametrize("kind", [PythonDraws, NumpyDraws, TorchDraws, DrawsInAMethod, DrawsInWhatItHolds])
@pytest.mark.few(1)
@pytest.mark.slow
def test_what_seldom_draws_and_waits_draws_when_the_script_would(kind):
    ours = walked(compile_loader(DataLoader(waiting(kind), batch_size=10)))
    plain = walked(DataLoader(waiting(kind), batch_size=10))
    for (batch, *drawn), (there, *drawn_there) in zip(ours, plain, strict=True):
        assert torch.equal(batch, there)
        assert drawn == drawn_there


def test_what_waits_and_draws_nothing_is_asked_for_early():
    compiled = compile_loader(DataLoader(waiting(Plain), batch_size=10))
    walked(compiled)
    assert compiled._kept.of(compiled._plain)._facts.num_waiting
