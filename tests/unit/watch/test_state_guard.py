"""What a stranger's code reaches is put back: attributes, containers, closures, generators, files, random streams."""

import collections
import random

import numpy as np
import pytest
import torch

from flatout.watch.state_guard import StateGuard, streams_alone

counter = 0


def closure():
    held = [1]
    number = 1

    def step():
        nonlocal number
        number += 1
        held.append(number)
        return number

    return step


class Rows:
    shared = ("a",)

    def __init__(self, file=None):
        self.count, self.names, self.by_key = 0, ["a", "b"], {"x": 1}
        self.few, self.last = {1, 2}, collections.deque([1, 2])
        self.rng, self.file, self.table = random.Random(1), file, np.arange(3)
        self.step = closure()

    def counts(self):
        global counter
        counter += 1


CHANGES = {
    "an attribute": (lambda rows: setattr(rows, "count", 1), lambda rows: rows.count == 0),
    "a new attribute": (lambda rows: setattr(rows, "new", 1), lambda rows: not hasattr(rows, "new")),
    "one that is gone": (lambda rows: delattr(rows, "count"), lambda rows: rows.count == 0),
    "a list": (lambda rows: rows.names.reverse(), lambda rows: rows.names == ["a", "b"]),
    "a dictionary": (lambda rows: rows.by_key.update(y=2), lambda rows: rows.by_key == {"x": 1}),
    "a set": (lambda rows: rows.few.add(3), lambda rows: rows.few == {1, 2}),
    "a deque": (lambda rows: rows.last.rotate(), lambda rows: list(rows.last) == [1, 2]),
    "a class": (lambda rows: setattr(Rows, "shared", ()), lambda rows: Rows.shared == ("a",)),
    "a closure": (lambda rows: rows.step(), lambda rows: rows.step() == 2),
    "a global": (lambda rows: rows.counts(), lambda rows: counter == 0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_is_as_it_was_and_said_to_have_changed(change):
    rows, (act, is_back) = Rows(), CHANGES[change]
    with StateGuard(rows) as guard:
        act(rows)
    assert (guard.changed, guard.drew) == (True, False)
    assert is_back(rows)


def test_nothing_is_said_of_what_only_reads():
    rows = Rows()
    names = rows.names
    with StateGuard(rows) as guard:
        assert [*rows.names, *rows.by_key, *rows.last]
    assert (guard.changed, guard.drew) == (False, False)
    assert rows.names is names


@pytest.mark.parametrize("draw", [random.random, np.random.random, lambda: torch.rand(1)])
def test_the_global_streams_go_on_where_they_stood(draw):
    with StateGuard() as guard:
        first = draw()
    assert guard.drew
    assert draw() == first


def test_a_generator_of_its_own_is_put_back_and_counts_as_drawing():
    rows = Rows()
    with StateGuard(rows) as guard:
        first = rows.rng.random()
    assert (guard.changed, guard.drew) == (False, True)
    assert rows.rng.random() == first


def test_a_generator_of_torchs_that_was_not_asked_did_not_draw():
    generator = torch.Generator()
    with StateGuard([generator]) as guard:
        pass
    assert not guard.drew
    with StateGuard([generator]) as guard:
        torch.rand(1, generator=generator)
    assert guard.drew


def test_a_file_is_read_on_from_where_it_was(tmp_path):
    (tmp_path / "rows.txt").write_text("abcdef")
    with (tmp_path / "rows.txt").open("rb") as file:
        file.read(2)
        with StateGuard(Rows(file)):
            file.read(3)
        assert file.read(1) == b"c"


def test_arrays_stay_as_they_were_written():
    rows = Rows()
    with StateGuard(rows) as guard:
        rows.table[0] = 9
    assert not guard.changed
    assert rows.table[0] == 9


def test_what_is_put_back_whole_is_covered_and_a_long_list_is_not():
    rows = Rows()
    rows.long = list(range(6000))
    with StateGuard(rows) as guard:
        pass
    assert {id(rows.names), id(rows.by_key), id(vars(rows))} <= guard.covered
    assert id(rows.long) not in guard.covered


def test_streams_alone_are_put_back_where_nothing_else_is_to_be():
    rows = Rows()
    with streams_alone(), StateGuard(rows) as guard:
        rows.count = 5
        first = rows.rng.random()
    assert rows.count == 5
    assert not guard.changed
    assert rows.rng.random() == first
    with StateGuard(rows):
        rows.count = 6
    assert rows.count == 5


def test_put_back_may_be_asked_for_before_the_end():
    rows = Rows()
    with StateGuard(rows) as guard:
        rows.count = 7
        guard.put_back()
        assert rows.count == 0
