"""What a data set sets up at its first sample, told from what it counts or replaces."""

import io

import pytest
import torch

from flatout.watch.first_use import Attributes, begins_alike
from flatout.watch.state_watch import StateWatch


class Rows:
    def __init__(self):
        self.file, self.table, self.count, self.scale = None, [1.0], 0, 1.5

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.file, self.table, self.count, self.scale, self.late


def opened(change):
    """Return what is said of a data set that `change` was done to, and that data set."""
    rows = Rows()
    attributes, watch = Attributes(rows), StateWatch([("Rows", rows)])
    change(rows)
    return attributes.only_opened(watch), rows


def change_both(rows):
    rows.file = io.BytesIO()
    rows.table.append(2.0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: None, True),
        (lambda rows: setattr(rows, "file", io.BytesIO(b"rows")), True),
        (lambda rows: setattr(rows, "late", [1, 2]), True),
        (lambda rows: setattr(rows, "file", 3), False),  # a number may depend on the sample
        (lambda rows: setattr(rows, "late", "text"), False),
        (lambda rows: setattr(rows, "count", 1), False),
        (lambda rows: setattr(rows, "table", [1.0]), False),
        (lambda rows: setattr(rows, "table", None), False),
        (lambda rows: rows.table.append(2.0), False),
        (change_both, False),
    ],
)
def test_only_objects_where_nothing_was_count_as_opened(change, expected):
    said, rows = opened(change)
    assert said is expected
    wanted = Rows()
    change(wanted)  # what was taken away to look is back
    assert vars(rows).keys() == vars(wanted).keys()
    assert {name: type(value) for name, value in vars(rows).items()} == {
        name: type(value) for name, value in vars(wanted).items()
    }


class Steady(Rows):
    def __getitem__(self, index):
        if self.file is None:
            self.file = [3.0]
        return torch.rand(2) + index * self.file[0]


class ByFirst(Rows):
    def __getitem__(self, index):
        if self.file is None:
            self.file = [float(index)]
        return torch.tensor(index - self.file[0])


class Failing(Rows):
    def __getitem__(self, index):
        if index == 3:
            raise ValueError("no such row")
        return torch.tensor(index)


@pytest.mark.parametrize(("kind", "alike"), [(Steady, True), (ByFirst, False), (Failing, False)])
def test_a_sample_may_not_depend_on_which_one_was_made_first(kind, alike):
    rows = kind()
    assert begins_alike(rows) is alike
    assert rows.file is None  # asked were copies
