"""What a function read, in all the ways that a script may hold it, is seen to change; else nothing is kept."""

import abc
import argparse
import array
import collections
import collections.abc
import dataclasses
import datetime
import enum
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


class Named(Pair):
    """A tuple with attributes besides its fields."""


class Size(float):
    """A number with attributes."""


class Attributes(argparse.Namespace):
    """Settings of a script's own class."""


class Mode(enum.Enum):
    NORMAL = 2.0


class Reader(torch.utils.data.Dataset, abc.ABC):
    """Classes that hold nothing themselves."""

    def __init__(self):
        self.scale = 2.0


class Table(collections.abc.Mapping):
    """What the classes of `collections.abc` add goes through methods of its own."""

    def __init__(self):
        self.rows = {"scale": 2.0}

    def __getitem__(self, key):
        return self.rows[key]

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)


class Layer(torch.nn.Linear):
    def scale(self):
        return float(self.in_features)


def of(value, read, name):
    """Return a function of a value, under a name of its own."""

    def function():
        return torch.ones(4) * (read(value) + tables.slow(1))

    function.__name__ = name
    return function


def made_of(*bases, read, change, args=()):
    """Return a function that reads an object of a class of the script's made from others, and what changes it."""
    value = type("Own", bases, {"__module__": __name__})(*args)
    return of(value, read, bases[0].__name__), lambda: change(value)


ATTRIBUTES, READER, MAPPING, LAYER = Attributes(scale=2.0), Reader(), Table(), Layer(2, 1)
ALONE = {
    of(ATTRIBUTES, lambda it: it.scale, "namespace"): lambda: setattr(ATTRIBUTES, "scale", 3.0),
    of(Mode.NORMAL, lambda it: it.value, "member"): lambda: setattr(Mode.NORMAL, "_value_", 3.0),
    of(READER, lambda it: it.scale, "data set"): lambda: setattr(READER, "scale", 3.0),
    of(MAPPING, lambda it: it.get("scale"), "mapping"): lambda: MAPPING.rows.update(scale=3.0),
    of(LAYER, lambda it: it.scale(), "layer"): lambda: setattr(LAYER, "in_features", 3),
}
KINDS = [
    made_of(
        collections.UserDict, read=lambda it: it["a"], change=lambda it: it.__setitem__("a", 3.0), args=({"a": 2.0},)
    ),
    made_of(collections.UserList, read=lambda it: it[0], change=lambda it: it.append(it.pop() + 1), args=([2.0],)),
    made_of(
        collections.ChainMap, read=lambda it: it["a"], change=lambda it: it.__setitem__("a", 3.0), args=({"a": 2.0},)
    ),
    made_of(collections.deque, read=lambda it: it[0], change=lambda it: it.appendleft(3.0), args=([2.0],)),
    made_of(collections.OrderedDict, read=lambda it: it["a"], change=lambda it: it.update(a=3.0), args=({"a": 2.0},)),
    made_of(bytearray, read=lambda it: it[0], change=lambda it: it.__setitem__(0, 3), args=(b"\2",)),
    made_of(array.array, read=lambda it: it[0], change=lambda it: it.__setitem__(0, 3), args=("b", [2])),
    made_of(
        np.ndarray, read=lambda it: float(it[0]), change=lambda it: it.fill(3), args=((1,), np.float64, np.full(1, 2.0))
    ),
    made_of(list, read=lambda it: it[0], change=lambda it: it.__setitem__(0, 3), args=([2],)),
    made_of(Named, read=lambda it: it.more, change=lambda it: setattr(it, "more", 3.0), args=(2.0, None)),
    made_of(Size, read=lambda it: it.more, change=lambda it: setattr(it, "more", 3.0), args=(2.0,)),
    made_of(datetime.timedelta, read=lambda it: it.more, change=lambda it: setattr(it, "more", 3.0), args=(2,)),
]


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


@pytest.mark.parametrize("function", ALONE, ids=lambda each: each.__name__)
def test_objects_of_classes_that_hold_attributes_alone_are_followed(function):
    kept = Kept(function)
    assert kept.again() == 4, kept.left
    ALONE[function]()
    assert kept.again(times=1) == 0


@pytest.mark.parametrize(("function", "change"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
def test_objects_that_hold_more_than_attributes_are_not_followed(function, change):
    for cell in function.__closure__:
        if isinstance(cell.cell_contents, Named | Size | datetime.timedelta):
            cell.cell_contents.more = 2.0
    kept = Kept(function)
    kept.again()
    change()
    kept.again()
    assert kept.acted == 0
    assert len(kept.left) == 1


LEVELS, NAMES = {1}, {1: 2.0}


def of_set():
    return [repr(each) for each in LEVELS] + [tables.slow(1)]


def of_keys():
    return [repr(each) for each in NAMES] + [tables.slow(1)]


@pytest.mark.parametrize("value", [True, 1.0])
@pytest.mark.parametrize("function", [of_set, of_keys])
def test_values_that_are_equal_and_of_another_type_are_others(function, value):
    kept = Kept(function)
    assert kept.again() == 4, kept.left
    LEVELS.clear()
    LEVELS.add(value)
    NAMES.clear()
    NAMES[value] = 2.0
    try:
        assert kept.again(times=1) == 0
    finally:
        LEVELS.clear()
        LEVELS.add(1)
        NAMES.clear()
        NAMES[1] = 2.0
