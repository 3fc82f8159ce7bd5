"""Whether batches of a data set may be made in other processes, too: found out in a copy of this one."""

import functools
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from flatout.watch.batch_side_effects import BatchSideEffects, keeps_results, make_some, told_of, unfollowed
from flatout.watch.freshness import Freshness


class Rows(Dataset):
    def __init__(self, folder=None):
        self.folder, self.count, self.scale = folder, 0, None

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([float(index)])


class Counts(Rows):
    def __getitem__(self, index):
        self.count += 1
        return torch.tensor([float(self.count)])


class SetsUp(Rows):
    def __getitem__(self, index):
        if self.scale is None:
            self.scale = [2.0]
        return torch.tensor([index * self.scale[0]])


class Asks(Rows):
    def __getitem__(self, index):
        return torch.tensor([float(get_worker_info() is None)])


class Fails(Rows):
    def __getitem__(self, index):
        raise ValueError("no such row")


@functools.lru_cache
def read(name):
    with open(name) as file:
        return float(file.read())


class Remembers(Rows):
    def __getitem__(self, index):
        return torch.tensor([read(self.folder / "scale.txt")])


def found(data, *, may_set_up=False):
    loader = DataLoader(data, batch_size=2)
    return make_some(loader, Freshness(loader, files="passed"), may_set_up=may_set_up)


def test_nothing_speaks_against_rows_that_only_read():
    assert found(Rows()) == BatchSideEffects()


@pytest.mark.parametrize(
    ("data", "against"),
    [
        (Counts(), "changes while it is read: Counts.count"),
        (SetsUp(), "changes while it is read: SetsUp.scale"),
        (Asks(), "asks which worker it is in"),
        (Fails(), "cannot be called in a copy of the process: it raised ValueError: no such row"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_speaks_against_it_is_said(data, against):
    assert against in found(data).against
    assert data.count == 0  # nothing was done here
    assert data.scale is None


def test_what_a_data_set_sets_up_at_its_first_batch_may_be_allowed():
    assert found(SetsUp(), may_set_up=True) == BatchSideEffects(sets_up=True)
    assert "Counts.count" in found(Counts(), may_set_up=True).against  # it goes on to change


def test_results_of_files_that_are_remembered_are_not_read_anew(tmp_path):
    (tmp_path / "scale.txt").write_text("2.0")
    assert found(Remembers(tmp_path)).against == "caches results of functions that read files (lru_cache)"
    assert keeps_results(Rows(), Remembers(tmp_path))
    assert not keeps_results(Rows())


class OnDays(Rows):
    def __init__(self, days):
        super().__init__()
        self.days = days

    def __getitem__(self, index):
        return torch.tensor(self.days.weekmask[index % 7])


def test_objects_of_compiled_classes_are_named_unless_they_are_only_pointers():
    assert unfollowed(Freshness(DataLoader(Rows()), files="passed")) == ""
    fresh = Freshness(DataLoader(OnDays(np.busdaycalendar())), files="passed")
    assert unfollowed(fresh) == "holds objects of the compiled class busdaycalendar, which may change unseen"
    fresh.graph.opaque = {"PyCapsule"}
    assert unfollowed(fresh) == ""
    fresh.graph.unwatched.append("an iterator of type zip")
    assert unfollowed(fresh) == "holds an iterator of type zip, which may change unseen"


def test_calls_are_noted_under_whatever_name_but_not_those_of_torch_itself():
    def asked(code):
        def ask():
            return code

        calls = told_of(ask)
        try:
            other = ask
            other()
            exec("ask()", {"ask": ask, "__name__": "torch.utils.data._utils.collate"})
        finally:
            sys.setprofile(None)
        ask()
        return calls

    assert asked(1) == [True]
