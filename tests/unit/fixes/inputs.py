"""Data sets for tests of fixes to the input: dear enough for workers, plain, random, or awkward in one way each."""

import random
import time

import torch
from torch.utils.data import Dataset

SLOW_S = 0.0006


class Rows(Dataset):
    """Samples that take a moment each, and draw nothing."""

    def __init__(self, length=40, slow_s=SLOW_S):
        self.length, self.slow_s = length, slow_s

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(self.slow_s)
        return torch.arange(6.0) * (float("nan") if index == 3 else index), index % 3


class Drawing(Rows):
    """Samples that draw random numbers, from the one with number `since` on."""

    def __init__(self, length=40, since=0, draw=lambda: float(torch.rand(()))):
        super().__init__(length)
        self.since, self.draw = since, draw

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + (self.draw() if index >= self.since else 0.0), y


class Counting(Rows):
    """A data set that changes itself as it is read."""

    calls = 0

    def __getitem__(self, index):
        self.calls += 1
        x, y = super().__getitem__(index)
        return x + self.calls, y


class Failing(Rows):
    """One sample cannot be read."""

    def __getitem__(self, index):
        if index == 21:
            raise KeyError("sample 21")
        return super().__getitem__(index)


class OwnGenerator(Rows):
    """Draws from a generator that it holds."""

    def __init__(self, length=40):
        super().__init__(length)
        self.rng = random.Random(7)

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + self.rng.random(), y


def passes(loader, epochs=3, stop_at=None):
    """Walk a loader as a training does; return every batch, and a draw from each random stream after every step."""
    seen = []
    for _ in range(epochs):
        for number, batch in enumerate(loader):
            seen.append((batch, float(torch.rand(())), random.random()))
            if number == stop_at:
                break
    return seen
