"""What some things are made from: what is followed, what is only named, and what may change unseen."""

import collections
import functools
import io
import struct

import numpy as np
import pytest
import torch

from flatout.watch.memory.layouts import compiled
from flatout.watch.memory.object_graph import FilteredDict, ObjectGraph, available

OFFSET = [1.0]


class Rows:
    unused = 3

    def __init__(self, held=None):
        self.scale, self.names, self.held = 1.5, ["a"], held
        self.count = 0

    def __getitem__(self, index):
        return self.scale, self.names, self.held, OFFSET


def shows(thing, change):
    """Return whether a change shows in the memory that is told of a thing, and which graph was made of it."""
    graph = ObjectGraph(thing)
    watch = compiled.Watch(graph.ranges.pairs, graph.ranges.owners, b"", b"", b"", -1)
    assert watch.look() is None
    change(thing)
    return watch.look() is not None


def put_global(value):
    def put(rows):
        OFFSET[0] = value

    return put


CHANGES = {
    "an attribute": lambda rows: setattr(rows, "scale", 2.5),
    "a list": lambda rows: rows.names.append("b"),
    "a tensor": lambda rows: rows.held[0].fill_(7),
    "an array": lambda rows: rows.held[1].fill(7),
    "a dictionary": lambda rows: rows.held[2].update(b=2),
    "a deque": lambda rows: rows.held[3].append(4),
    "a closure": lambda rows: rows.held[4](5),
    "what a global holds": put_global(2.0),
    "a class": lambda rows: setattr(Rows, "scale", 9),
}


def closure():
    number = 1

    def step(value=None):
        nonlocal number
        number = value or number
        return number

    return step


def held():
    return (torch.ones(3), np.ones(3), {"a": 1}, collections.deque([1, 2]), closure())


def test_this_python_lays_its_objects_out_as_is_assumed():
    assert available()


@pytest.mark.parametrize("change", CHANGES)
def test_what_samples_are_made_from_is_told(change, monkeypatch):
    monkeypatch.setitem(globals(), "OFFSET", [1.0])
    try:
        assert shows(Rows(held()), CHANGES[change])
    finally:
        if "scale" in vars(Rows):
            del Rows.scale


def test_an_attribute_that_no_code_names_is_not_watched():
    rows = Rows()
    graph = ObjectGraph(rows)
    (watched,) = [each for each in graph.filtered.values() if each.within is vars(rows)]
    assert set(watched.taken) == {"scale", "names", "held"}
    rows.count = 5
    assert watched.as_before()
    rows.scale = 2.5
    assert not watched.as_before()
    assert watched.differing() == "scale"


def test_what_is_left_out_is_passed_over():
    rows = Rows([[1.0]])
    graph = ObjectGraph(rows, left_out=[rows.held])
    owners = {owner for (owner,) in struct.iter_unpack("Q", graph.ranges.owners)}
    assert id(rows.names) in owners
    assert id(rows.held) not in owners
    assert id(rows.held[0]) not in owners


def test_numbers_that_may_change_have_no_ranges():
    rows = Rows(torch.ones(64))
    at = rows.held.data_ptr()
    starts = [start for start, _ in struct.iter_unpack("QQ", ObjectGraph(rows).ranges.pairs)]
    assert at in starts
    starts = [start for start, _ in struct.iter_unpack("QQ", ObjectGraph(rows, live=frozenset({at})).ranges.pairs)]
    assert at not in starts


def test_what_may_change_unseen_is_said():
    assert ObjectGraph(Rows(iter([1]))).unwatched == ["an iterator of type list_iterator"]
    assert ObjectGraph(Rows(np.busdaycalendar())).opaque >= {"busdaycalendar"}
    assert ObjectGraph(Rows(functools.lru_cache(len))).unwatched == []


class ByName(Rows):
    def __getitem__(self, index):
        return eval("OFFSET")


def test_code_that_reads_out_of_sight_is_said():
    assert ObjectGraph(ByName()).unwatched == ["code that reads what changes out of sight (eval)"]


def test_a_mapped_file_is_named(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(8))
    assert ObjectGraph(Rows(np.load(tmp_path / "rows.npy", mmap_mode="r"))).files == {str(tmp_path / "rows.npy")}


def test_an_object_without_weak_references_is_followed_all_the_same():
    assert shows(Rows([io.StringIO, {"a": [1]}]), lambda rows: rows.held[1]["a"].append(2))


def test_of_a_dictionary_only_named_keys_are_looked_at():
    within = {"a": 1, "b": [1], "c": float("nan")}
    names = {"a", "c", "d"}
    filtered = FilteredDict(lambda: within, [names], "module m")
    assert sorted(filtered.wanted()) == ["a", "c"]
    assert filtered.wanted() == []
    assert filtered.as_before()
    within["b"] = 3
    assert filtered.as_before()
    within["a"] = 1.0  # equal, and of another type
    assert filtered.differing() == "a"
    within["a"] = 1
    within["d"] = 2
    assert (filtered.as_before(), filtered.differing()) == (False, "d")
    names.add("b")
    assert sorted(filtered.wanted()) == ["b", "d"]
    del within["a"]
    assert filtered.differing() == "a"
