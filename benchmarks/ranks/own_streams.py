"""What models use outside of them: streams of random numbers of the script's own, a mask made late, an iterator."""

import itertools
import random

import numpy
import torch
from torch import nn

torch.manual_seed(0)
NOISE, STRENGTH, STEPS = random.Random(5), numpy.random.default_rng(6), itertools.count()
MASK = None


class Noisy(nn.Module):
    """Each call scales its batch by numbers of two streams: all rows by the same."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 24)

    def forward(self, x):
        return torch.tanh(self.inner(x) * (1 + 0.3 * NOISE.random())) + 0.1 * STRENGTH.random()


class Masked(nn.Module):
    """The first call makes a mask, of the type that it computes in."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(24, 24)

    def forward(self, x):
        global MASK
        if MASK is None:
            MASK = torch.linspace(0, 1, 24, dtype=x.dtype)
        return torch.relu(self.inner(x) * MASK)


class Alternating(nn.Module):
    """An iterator says which head a call goes to."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(24, 3), nn.Linear(24, 3)])

    def forward(self, x):
        return self.heads[next(STEPS) % 3 % 2](x)


model = nn.ModuleList([Noisy(), Masked(), Alternating()])
optimizer = torch.optim.Adam(model.parameters(), 5e-3)
x = torch.randn(300, 12)
y = x[:, :3].argmax(1)
for epoch in range(5):
    for rows in torch.randperm(300).split(25):
        found = x[rows]
        for part in model:
            found = part(found)
        loss = nn.functional.cross_entropy(found, y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{epoch} {loss.item():.6f} {NOISE.random():.6f} {STRENGTH.random():.6f} {next(STEPS)} {MASK.dtype}")
