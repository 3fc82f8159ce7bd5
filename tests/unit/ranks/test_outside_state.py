"""Whether all is seen that a module may change outside of itself: plain code, and what leads to something hidden."""

import collections
import functools
import itertools
import logging
import math
import random
from argparse import Namespace
from dataclasses import dataclass
from random import Random, uniform
from types import SimpleNamespace
from typing import ClassVar

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from flatout.ranks.outside_state import all_is_seen

ARGS = Namespace(rate=0.5, widths=[3, 4], name="wide")
SPACE = SimpleNamespace(deep=SimpleNamespace(count=0))
WORDS, SEEN, NESTED = {"a": 1}, [1, 2], [[1], [2]]
LOG = logging.getLogger("script")
COUNT, OWN, LATE, TABLE = itertools.count(), Random(0), None, torch.ones(3)
GENERATOR, TORCH_GENERATOR, WAITING = numpy.random.default_rng(0), torch.Generator(), collections.deque([1])
NET = nn.Linear(3, 3)
DRAW = OWN.random


@dataclass
class Config:
    width: int = 3


class Meter:
    def __init__(self):
        self.total = 0

    def update(self, by):
        self.total += by


CONFIG, METER = Config(), Meter()


def scaled(x):
    return x * ARGS.rate


def counted(x):
    return x * (1 + 0 * next(COUNT))


def deeper(x):
    return deep(x)


def deep(x):
    return deepest(x)


def deepest(x):
    return x * (1 + 0 * next(COUNT))


@functools.lru_cache
def kept(number):
    return number


def late(x):
    global LATE
    LATE = LATE if LATE is not None else torch.ones(3)
    return x * LATE


def module(forward, **held):
    """A module with this method, and what else it holds."""

    acting = type("Acting", (nn.Module,), {"forward": forward, "__module__": __name__})

    found = acting()
    found.layer = nn.Linear(3, 3)
    for name, value in held.items():
        setattr(found, name, value)
    return found


class Shared(nn.Module):
    calls: ClassVar[list] = []

    def forward(self, x):
        self.calls.append(len(x))
        return x


class Counted(nn.Module):
    @staticmethod
    def step(x):
        return counted(x)

    def forward(self, x):
        return self.step(x)


class CopiedAsItIs(nn.Module):
    def __deepcopy__(self, memo):
        return self

    def forward(self, x):
        return x


SEEN_ALL = {
    "functional": lambda self, x: F.relu(self.layer(x)) * math.pi,
    "settings": lambda self, x: self.layer(x) * ARGS.rate if ARGS.widths[0] else x,
    "tables": lambda self, x: x * WORDS["a"] + SEEN[0],
    "records": lambda self, x: x[:, : CONFIG.width],
    "functions": lambda self, x: scaled(x) + uniform(0, 1) + random.random() + numpy.random.rand(),
    "logger": lambda self, x: LOG.debug("called") or x,
    "super": lambda self, x: nn.Module.__call__ and isinstance(x, torch.Tensor) and x,
    "inner": lambda self, x: sum([F.gelu(each) for each in x]),
}
HIDDEN = {
    "iterator": lambda self, x: x * next(COUNT),
    "function of an iterator": lambda self, x: counted(x),
    "generator of Python's": lambda self, x: x * OWN.random(),
    "its method": lambda self, x: x * DRAW(),
    "generator of NumPy's": lambda self, x: x * GENERATOR.random(),
    "generator of torch's": lambda self, x: x + torch.randn(3, generator=TORCH_GENERATOR),
    "queue": lambda self, x: x * WAITING[0],
    "tensor": lambda self, x: x + TABLE,
    "module": lambda self, x: NET(x),
    "nested": lambda self, x: x * NESTED[0][0],
    "record of a record": lambda self, x: x * SPACE.deep.count,
    "object with methods": lambda self, x: METER.update(1) or x,
    "memo": lambda self, x: x * kept(1),
    "calls beyond those that are followed": lambda self, x: deeper(x),
    "late global": lambda self, x: late(x),
    "globals": lambda self, x: x * globals()["COUNT"],
    "dict of a class": lambda self, x: len(self.__class__.__dict__) * x,
    "type": lambda self, x: type(self) and x,
    "default": lambda self, x, seen=SEEN: x * seen[0],
}


@pytest.mark.parametrize("name", list(SEEN_ALL))
def test_plain_code_is_seen(name):
    assert all_is_seen(list(module(SEEN_ALL[name]).modules()))


def test_modules_of_torch_are_seen():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    found = nn.Sequential(
        nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.1), nn.Embedding(3, 4), nn.LSTM(3, 4), layer
    )
    assert all_is_seen(list(found.modules()))


@pytest.mark.parametrize("name", list(HIDDEN))
def test_code_that_leads_to_something_hidden_is_not(name):
    assert not all_is_seen(list(module(HIDDEN[name]).modules()))


def test_variables_of_a_closure():
    level, seen, steps = 3, [1, 2], itertools.count()

    def raised(self, x):
        nonlocal level
        level += 1
        return x

    assert all_is_seen([module(lambda self, x: x * level + len(seen))])
    assert not all_is_seen([module(lambda self, x: x * next(steps))])
    assert not all_is_seen([module(raised)])


def test_attributes_that_copies_share():
    plain = SEEN_ALL["functional"]
    assert all_is_seen([module(plain, scale=0.5, act=F.relu, sizes=[1, (2, 3)], where={"a": torch.ones(2)})])
    for hidden in (counted, functools.partial(counted), [counted], METER.update, METER, OWN, {"rng": GENERATOR}):
        assert not all_is_seen([module(plain, held=hidden)]), hidden
    assert not all_is_seen([nn.TransformerEncoderLayer(8, 2, 16, activation=lambda x: counted(x))])
    aside = module(plain)
    vars(aside)["held"] = [nn.Linear(2, 2)]
    assert not all_is_seen([aside])


@pytest.mark.parametrize("kind", [Shared, Counted, CopiedAsItIs])
def test_classes_that_hold_more_than_methods(kind):
    assert not all_is_seen([kind()])


def test_a_module_of_the_script_that_is_imported_in_a_call():
    def plain(self, x):
        import math

        return x * math.pi

    def own(self, x):
        import tests.unit.ranks.in_processes as imported

        return x * bool(imported)

    assert all_is_seen([module(plain)])
    assert not all_is_seen([module(own)])
