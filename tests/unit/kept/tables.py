"""Functions as scripts have them, some that may be kept and some that may not: the tests of kept calls call them."""

import functools
import math
import random
import time

import numpy as np
import torch

SCALE = 2.0
LEVELS = [1, 2, 3]
SEEN = []
CALLS = []  # not named by any of the functions below


def positions(n, width):
    """A table by plain Python, with another function of the script's."""
    return torch.tensor([[angle(i, j, width) for j in range(width)] for i in range(n)])


def angle(i, j, width):
    return math.sin(i / 10000 ** (j / width)) * SCALE


def scaled(n):
    table = torch.zeros(n, len(LEVELS))
    for i in range(n):
        for j, level in enumerate(LEVELS):
            table[i, j] = i * level * SCALE
    return table


def edges(adjacency):
    slow(4)
    return adjacency.nonzero(), adjacency.sum(1)


def lists(n):
    slow(n)
    return {"rows": [[i * j for j in range(n)] for i in range(n)], "name": "grid", "sizes": (n, n)}


def arrays(n):
    grid = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            grid[i, j] = i - j
    return grid


def grown(n):
    return torch.ones(n) * (slow(n) + 2)


def quick(n):
    return torch.ones(n)


@torch.no_grad()
def decorated(n):
    return positions(n, 4)


def drawn(n):
    return torch.rand(n) + slow(n)


def drawn_in_python(n):
    return torch.full((n,), random.random()) + slow(n)


def clocked(n):
    return torch.full((n,), time.perf_counter()) + slow(n)


def printed(n):
    print("a table is made")
    return torch.ones(n) + slow(n)


def noted(n):
    SEEN.append(n)
    return torch.ones(n) + slow(n)


def remembered(n):
    remembered.last = n
    return torch.ones(n) + slow(n)


def counted(n):
    global SCALE
    SCALE = SCALE + 1
    return torch.ones(n) + slow(n)


def written(values):
    values.add_(1)
    return values * 2 + slow(4)


def appended(rows):
    rows.append(1)
    return torch.ones(4) + slow(4)


def same_memory(values):
    slow(4)
    return values


def by_name(n):
    return torch.ones(n) * globals()["SCALE"] + slow(n)


def from_file(path):
    with open(path) as file:
        return torch.tensor([float(line) for line in file]) + slow(4)


def twice(n):
    row = [0] * n
    slow(n)
    return [row, row]


@functools.lru_cache(maxsize=2)
def cached(n):
    return n * SCALE


def through_cache(n):
    return torch.full((n,), cached(n)) + slow(n)


def learned(weight):
    return weight * 2 + slow(4)


def slow(n):
    total = 0
    for i in range(40_000):
        total += i % 7
    return total * 0.0


class Grid(torch.nn.Module):
    """A module with a table of its own."""

    def __init__(self):
        super().__init__()
        self.size, self.step = 6, 0
        self.register_buffer("offsets", torch.arange(6.0))
        self.weight = torch.nn.Parameter(torch.ones(6))
        self.kept = None
        self.levels = {"a": 1.0, "b": 2.0}

    def table(self):
        rows = [[abs(i - j) * self.levels["b"] for j in range(self.size)] for i in range(self.size)]
        slow(4)
        return torch.tensor(rows) + self.offsets

    def lazily(self):
        slow(4)
        if self.kept is None:
            self.kept = torch.ones(4)
        return self.kept

    def of_weight(self):
        return self.weight.detach() * 2 + slow(4)

    def of_step(self):
        return torch.ones(4) * self.step + slow(4)

    def forward(self, x):
        return self.table() * self.weight + x


def around(function):
    """Return a function that counts how often `function` really runs."""
    calls = []

    def counting(*args, **kwargs):
        calls.append(1)
        return function(*args, **kwargs)

    return counting, calls
