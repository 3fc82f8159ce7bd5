"""A process with fixes in it, for the length of a test: seams, module watch and optimizer hooks as in a real run."""

import torch
from torch import nn

from flatout.fixes.core.apply import install_fix
from flatout.probe.core.event_log import EventLog
from flatout.probe.core.seams import Seams
from flatout.probe.model.losses import Losses
from flatout.probe.model.modules import ModuleWatch
from flatout.probe.model.training_loop import TrainingWatch
from flatout.schema.trial import Selection


class Process:
    """Fixes installed as `flatout run` does it, switched on unless said otherwise."""

    def __init__(self, *selections, on=True):
        self.seams = Seams()
        event_log = EventLog(lambda step: None, lambda stretch: None)
        self.modules = ModuleWatch(event_log)
        self.watch = TrainingWatch(event_log, self.modules, Losses())
        self.selections, self.on = selections, on
        self.sites = []

    def __enter__(self):
        for name, settings in self.selections:
            self.sites.append(install_fix(Selection(name, settings), self.seams, self.modules))
        for site in self.sites:
            assert not site.failure
            if self.on:
                site.enable()
        self.watch.install(self.seams)
        return self

    def __exit__(self, *_):
        for site in reversed(self.sites):
            site.disable()
        self.modules.unhook()
        self.watch.uninstall()
        self.seams.undo()

    @property
    def site(self):
        return self.sites[0]


def under(name, *, on=True, **settings):
    """Return a process with one fix."""
    return Process((name, settings), on=on)


class Images(nn.Module):
    """A small convolutional network with batch statistics; a 1x1 convolution is among its layers."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)  # a bias would be noise
        self.second, self.last = nn.Conv2d(8, 4, 1), nn.Linear(4 * 36, 5)

    def forward(self, x):
        return self.last(torch.relu(self.second(torch.relu(self.norm(self.first(x))))).flatten(1))


def train(steps=4, model=None, make=None, optimizer=None, before_step=None, seed=0):
    """Train a small network on images and return (model, optimizer, losses)."""
    torch.manual_seed(seed)
    model = model if model is not None else Images()
    make = make or (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
    optimizer = optimizer or make(model.parameters())
    generator = torch.Generator().manual_seed(1)
    losses = []
    for step in range(steps):
        if before_step is not None:
            before_step(step)
        x, y = torch.randn(8, 3, 8, 8, generator=generator), torch.randint(0, 5, (8,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, optimizer, losses


def same_bits(one, other):
    """Say whether two nested structures hold the same tensors (bits, types, strides) and the same values."""
    if isinstance(one, torch.Tensor):
        return (
            isinstance(other, torch.Tensor)
            and (one.dtype, one.shape, one.stride(), one.device)
            == (other.dtype, other.shape, other.stride(), other.device)
            and torch.equal(one, other)
            and (not one.is_floating_point() or torch.equal(one.signbit(), other.signbit()))  # of zeros, too
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same_bits(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_bits, one, other))
    return bool(one == other)
