"""What never changes, what moves on by itself, and what stands behind an object."""

import collections
import datetime
import enum
import functools
import pathlib
import re
import threading
import weakref

import numpy as np
import pytest
import torch

from flatout.watch.memory.object_kinds import base_container, behind, is_immutable, is_mutable_iterator, unfollowed


class Color(enum.Enum):
    RED = 1


class Mine(dict):
    pass


class Pair(collections.namedtuple("Pair", "a b")):
    pass


UNCHANGING = [
    pathlib.Path("a"),
    re.compile("a"),
    range(3),
    slice(1),
    datetime.date(2020, 1, 1),
    len,
    np.float32(1),
    np.dtype("f4"),
    np.add,
    torch.float32,
    torch.Size([1]),
    re.RegexFlag.A,
    list[int],
]
CHANGING = [[], {}, Mine(), Color.RED, np.arange(2), torch.ones(1), [].append, object(), threading.Event(), Color]


@pytest.mark.parametrize("thing", UNCHANGING, ids=repr)
def test_what_never_changes(thing):
    assert is_immutable(thing)


@pytest.mark.parametrize("thing", CHANGING, ids=lambda each: type(each).__name__)
def test_what_may_change(thing):
    assert not is_immutable(thing)


def test_what_gives_the_next_of_something_moves_on():
    assert is_mutable_iterator(iter([1]))
    assert is_mutable_iterator(one for one in ())
    assert not is_mutable_iterator([1])
    assert not is_mutable_iterator(type(iter([])))


@pytest.mark.parametrize(("kind", "name"), [(Mine, "dict"), (Pair, "tuple"), (list, "list"), (object, None)])
def test_the_container_that_a_class_is_made_from(kind, name):
    assert base_container(kind) == name


def test_locks_and_threads_are_not_followed():
    assert isinstance(threading.Lock(), unfollowed())
    assert isinstance(threading.current_thread(), unfollowed())
    assert not isinstance([], unfollowed())


def test_behind_a_container_of_ones_own_stands_what_is_no_item():
    mine, inner = Mine(a=[1]), [2]
    mine.extra = inner
    found = behind(mine, vars(mine))
    assert not any(one is mine["a"] or one is vars(mine) for one in found)


def test_behind_a_partial_stand_its_function_and_what_it_is_given():
    given = [1]
    found = behind(functools.partial(sorted, given), None)
    assert any(one is sorted for one in found)
    assert any(type(one) is tuple and one[0] is given for one in found)


def test_a_weak_reference_leads_to_what_it_refers_to():
    thing = Mine()
    reference = weakref.ref(thing)
    assert behind(reference, None) == [thing]
    del thing
    assert behind(reference, None) == [None]
