"""Samples read with their transform left out, to be done later to what was read."""

from collections import namedtuple

import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from flatout.pipeline.read.sample_reader import AroundTransform, at_once, behind, reader_of

Pair = namedtuple("Pair", "x y")


def noisy(value):
    return value + torch.rand(1)


class Rows(Dataset):
    def __init__(self, form="one", transform=noisy):
        self.transform, self.form, self.opened, self.calls = transform, form, None, 0

    def __len__(self):
        return 8

    def __getitem__(self, index):
        value, change = torch.tensor([float(index)]), self.transform
        return {
            "one": lambda: (change(value), index),
            "dict": lambda: {"x": change(value), "y": [index]},
            "named": lambda: Pair(change(value), change(value * 2)),
            "pair": lambda: change(value, value * 2),
            "apart": lambda: [*change(value, value * 2)],
            "keys": lambda: change(image=value)["image"],
            "changed": lambda: change(value) * 2,
            "lost": lambda: (change(value) and 0, index),
            "none": lambda: (value, index),
        }[self.form]()


def both(x, y):
    return x + torch.rand(1), y + torch.rand(1)


def by_name(*, image):
    return {"image": image + torch.rand(1)}


FORMS = {"one": noisy, "dict": noisy, "named": noisy, "apart": both, "keys": by_name}


@pytest.mark.parametrize("form", FORMS)
def test_what_was_read_makes_the_sample_with_the_data_sets_own_transform(form):
    rows = Rows(form, FORMS[form])
    reader = AroundTransform(rows, "transform")
    state = torch.get_rng_state()
    entry = reader.read(rows, 3)
    assert torch.equal(torch.get_rng_state(), state)  # nothing was drawn
    torch.manual_seed(1)
    made = reader.finish(rows, entry)
    torch.manual_seed(1)
    wanted = rows[3]
    assert type(made) is type(wanted)
    assert repr(made) == repr(wanted)
    rows.transform = lambda *values, **named: {"image": -1, "x": -1, 0: -1}  # followed
    assert reader.left_out(rows) is rows.transform


@pytest.mark.parametrize("form", ["changed", "lost", "none"])
def test_what_a_transform_gives_must_come_out_untouched(form):
    rows = Rows(form)
    with pytest.raises((ValueError, TypeError)):
        AroundTransform(rows, "transform").read(rows, 3)


def test_one_value_cannot_be_taken_apart():
    rows = Rows("one")
    reader = AroundTransform(rows, "transform")
    calls, (mark, _) = reader.read(rows, 3)
    assert [(values[0].tolist(), named) for values, named in calls] == [([3.0], {})]
    with pytest.raises(TypeError, match="taken apart"):
        iter(mark)
    with pytest.raises(TypeError, match="looked into"):
        mark[0]


class Opens(Rows):
    def __getitem__(self, index):
        self.opened = self.opened or [1]
        return super().__getitem__(index)


class Counts(Rows):
    def __getitem__(self, index):
        self.calls += 1
        return super().__getitem__(index)


@pytest.mark.parametrize(("kind", "steady"), [(Rows, True), (Opens, True), (Counts, False)])
def test_reading_that_changes_something_each_time_is_not_steady(kind, steady):
    rows = kind()
    assert AroundTransform(rows, "transform").steady(rows, 1) is steady
    assert rows.calls == 0  # a copy was asked


def test_a_random_transform_is_left_out_and_any_other_is_not():
    rows = Rows()
    assert isinstance(reader_of(rows, 0, True), AroundTransform)
    whole = reader_of(rows, 0, False)
    assert whole.finish(rows, whole.read(rows, 3))[1] == 3
    assert (whole.steady(rows, 0), whole.left_out(rows)) == (True, None)
    assert not isinstance(reader_of(Rows("changed"), 0, True), AroundTransform)


class Draws(Rows):
    def __getitem__(self, index):
        return self.transform(torch.tensor([torch.rand(1).item()])), index


def test_where_something_else_is_random_nothing_is_left_out():
    state = torch.get_rng_state()
    assert not isinstance(reader_of(Draws(), 0, True), AroundTransform)
    assert torch.equal(torch.get_rng_state(), state)


class Together(Rows):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def test_a_data_set_that_is_asked_for_many_at_once_is_found_behind_its_parts():
    assert at_once(Together())
    assert at_once(Subset(Subset(Together(), [1, 2]), [0]))
    assert not at_once(Rows())


def test_a_sample_is_found_behind_torchs_own_wrappers():
    first, second = TensorDataset(torch.arange(3)), TensorDataset(torch.arange(4))
    whole = ConcatDataset([first, second])
    assert behind(whole, 2) == (first, 2)
    assert behind(whole, 3) == (second, 0)
    assert behind(Subset(whole, [6, 0]), 0) == (second, 3)
    assert behind(whole, -1) == (whole, -1)
    assert behind(first, 1) == (first, 1)
