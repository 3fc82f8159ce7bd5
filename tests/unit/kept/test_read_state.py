"""What a function read, in all the ways that a script may hold it, is seen to change; else nothing is kept."""

import collections
import dataclasses
import os
import types

import numpy as np
import pytest
import torch
from tests.unit.kept import tables
from tests.unit.kept.test_kept_function import Kept

pytestmark = pytest.mark.slow


@dataclasses.dataclass
class Settings:
    scale: float = 2.0
    inner: object = None


class Slotted:
    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 2.0


class Base:
    factor = 2.0

    def value(self):
        return self.factor


class Derived(Base):
    def __init__(self):
        self.own = 1.0

    def value(self):
        return super().value() + self.own

    @property
    def doubled(self):
        return self.value() * 2

    def __len__(self):
        return int(self.own)


class Scales:
    """A stand-in for settings that are read by their names."""

    def __init__(self):
        self.values = {"scale": 2.0}

    def __getattr__(self, name):
        return self.values[name]


class Grid:
    def scale(self):
        return {"Grid": 2.0, "Coarse": 3.0}[type(self).__name__]


Pair = collections.namedtuple("Pair", "scale other")
SETTINGS, NESTED = Settings(), Settings(inner=Settings())
PLAIN, SLOTTED, DERIVED, SCALES = types.SimpleNamespace(scale=2.0), Slotted(), Derived(), Scales()
GRID, PAIR, GENERATOR = Grid(), Pair(2.0, [1.0]), np.random.default_rng(0)
TABLE, ROWS, DRAWN = {"scale": 2.0}, np.ones(4), iter(range(10**6))


def of_settings():
    return torch.ones(4) * (SETTINGS.scale + tables.slow(1))


def of_nested():
    return torch.ones(4) * (NESTED.inner.scale + tables.slow(1))


def of_namespace():
    return torch.ones(4) * (PLAIN.scale + tables.slow(1))


def of_slots():
    return torch.ones(4) * (SLOTTED.scale + tables.slow(1))


def of_classes():
    return torch.ones(4) * (DERIVED.doubled + len(DERIVED) + tables.slow(1))


def of_class_name():
    return torch.ones(4) * (GRID.scale() + tables.slow(1))


def of_any_name():
    return torch.ones(4) * (SCALES.scale + tables.slow(1))


def of_pair():
    return torch.ones(4) * (PAIR.scale + PAIR.other[0] + tables.slow(1))


def of_array():
    return torch.tensor(ROWS * 2) + tables.slow(1)


def of_default(scales=[2.0]):  # noqa: B006  as scripts have them
    return torch.ones(4) * (scales[0] + tables.slow(1))


def of_environment():
    return torch.ones(4) * (float(os.environ.get("KEPT_SCALE", "2")) + tables.slow(1))


def of_generator():
    return torch.tensor(GENERATOR.random(4)) + tables.slow(1)


def of_iterator():
    return torch.ones(4) * (next(DRAWN) + tables.slow(1))


def made():
    scale = 2.0

    def of_closure():
        return torch.ones(4) * (scale + tables.slow(1))

    def change():
        nonlocal scale
        scale = 3.0

    return of_closure, change


OF_CLOSURE, CHANGE_CLOSURE = made()
FOLLOWED = {
    of_settings: lambda: setattr(SETTINGS, "scale", 3.0),
    of_nested: lambda: setattr(NESTED.inner, "scale", 3.0),
    of_namespace: lambda: setattr(PLAIN, "scale", 3.0),
    of_classes: lambda: setattr(Base, "factor", 3.0),
    of_class_name: lambda: setattr(Grid, "__name__", "Coarse"),
    of_any_name: lambda: SCALES.values.update(scale=3.0),
    of_pair: lambda: PAIR.other.__setitem__(0, 3.0),
    of_array: lambda: ROWS.__setitem__(2, 9.0),
    of_default: lambda: of_default.__defaults__[0].__setitem__(0, 3.0),
    OF_CLOSURE: CHANGE_CLOSURE,
}
NOT_FOLLOWED = [of_slots, of_environment, of_generator, of_iterator]


@pytest.mark.parametrize("function", FOLLOWED, ids=lambda each: each.__name__)
def test_a_change_is_seen_by_the_next_call(function):
    kept = Kept(function)
    assert kept.again() == 4, kept.left
    FOLLOWED[function]()
    assert kept.again(times=1) == 0
    assert kept.again(times=5) == 2


def test_an_attribute_of_the_object_takes_the_place_of_that_of_its_class():
    kept = Kept(of_classes)
    assert kept.again() == 4, kept.left
    DERIVED.factor = 7.0
    assert kept.again(times=1) == 0
    assert kept.again(times=5) == 2
    Derived.__len__ = lambda self: 11
    assert kept.again(times=1) == 0


@pytest.mark.parametrize("function", NOT_FOLLOWED, ids=lambda each: each.__name__)
def test_what_cannot_be_followed_is_not_kept(function):
    kept = Kept(function)
    for _ in range(8):
        kept.call()
    assert kept.acted == 0
    assert len(kept.left) == 1
