"""The loops by name, and what many of them train on."""

import functools

import torch
from torch import nn
from torch.nn.functional import cross_entropy

LOOPS = {}


def loop(train):
    """Register a loop; it begins from a seed of its own."""

    @functools.wraps(train)
    def seeded():
        torch.manual_seed(len(train.__name__))
        return train()

    LOOPS[train.__name__] = seeded
    return seeded


def rows(size=16):
    """Return samples of six numbers and labels of three classes."""
    return torch.randn(size, 6), torch.randint(0, 3, (size,))


def images(size=4):
    """Return small images and labels of three classes."""
    return torch.randn(size, 3, 8, 8), torch.randint(0, 3, (size,))


def mlp():
    """Return a small network with noise and batch statistics; a bias before these would be noise, too."""
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 3))


class Convolutions(nn.Module):
    """A body and a head, as people write them."""

    def __init__(self, classes=3):
        super().__init__()
        first, last = nn.Conv2d(3, 4, 3, bias=False), nn.Conv2d(4, 4, 3)
        self.body = nn.Sequential(first, nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1), last)
        self.head = nn.Linear(4 * 16, classes)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def step(model, optimizer, batch=None, loss_of=cross_entropy):
    """Make one ordinary step and return its loss."""
    x, y = batch or rows()
    loss = loss_of(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def state(*models):
    """Return copies of all that the models hold."""
    return [value.detach().clone() for model in models for value in model.state_dict().values()]
