"""The first look at a data set, in a copy of the process: why a loader is left as it is."""

import logging
import os
import random

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from flatout.watch.rehearsal import Rehearsal, rehearse


class Rows(Dataset):
    def __init__(self):
        self.count, self.table = 0, torch.arange(8.0)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.table[index].clone()


class Counts(Rows):
    def __getitem__(self, index):
        self.count += 1
        return super().__getitem__(index)


class Logs(Rows):
    def __getitem__(self, index):
        logging.getLogger("rows").warning("row %d", index)
        return super().__getitem__(index)


class Writes(Rows):
    def __getitem__(self, index):
        with open("rows.log", "a") as file:
            file.write("row")
        return super().__getitem__(index)


class RandomLength(Rows):
    def __len__(self):
        return random.randint(8, 9) * 0 + 8


class Together(Rows):
    def __getitems__(self, indices):
        return [self.table[index] + len(indices) for index in indices]


class ByNumber(Rows):
    def __getitem__(self, index):
        return torch.tensor(float(len(os.pread(self.count, 1, index))))


class Asks(Rows):
    def __getitem__(self, index):
        return torch.tensor(float(get_worker_info() is None))


class Iterates(Rows):
    def __init__(self):
        super().__init__()
        self.rows = iter([1, 2])

    def __getitem__(self, index):
        return next(self.rows)


def looked_at(data, **named):
    loader = DataLoader(data, **named)

    def begin():
        try:
            loader.dataset[0]
        except ArithmeticError:
            return "cannot be read", None
        return "", 7

    return rehearse(loader, begin)


def test_where_nothing_speaks_against_it_what_was_found_comes_back():
    assert looked_at(Rows()) == Rehearsal(found=7)


def test_what_can_be_put_back_is_said_and_nothing_is_done_here():
    data = Counts()
    found = looked_at(data)
    assert (found.reason, found.changes, data.count) == ("", True, 0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (Logs(), "Logs logs while it is read"),
        (Writes(), "Writes cannot be read in a copy of the process"),
        (RandomLength(), "RandomLength draws random numbers to compute its length"),
        (Together(), "Together returns different samples when several are requested at once (`__getitems__`)"),
        (ByNumber(), "ByNumber reads an open file by its number"),
        (Iterates(), "Iterates holds an iterator of type list_iterator, which may change unseen"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_speaks_against_it_is_the_reason(workdir, data, reason):
    with open("rows.bin", "wb+") as file:
        file.write(b"12345678")
        file.flush()
        data.count = file.fileno()
        assert looked_at(data).reason.startswith(reason)
    assert os.listdir() == ["rows.bin"]


def shift(worker):
    Rows.offset = worker


def test_workers_that_differ_and_samples_that_ask_for_theirs_are_left():
    assert looked_at(Asks()).reason == ""  # without workers there is one answer
    assert "it asks which worker it is in (get_worker_info)" in looked_at(Asks(), num_workers=1).reason
    assert looked_at(Rows(), num_workers=1, worker_init_fn=lambda worker: None).reason == ""


def keep(samples):
    return samples[0].dataset


def test_a_batch_that_is_the_data_sets_own_is_left():
    data = Rows()
    found = looked_at(data, collate_fn=lambda samples: data.table[:2])
    assert found.reason == "its batches hold a Tensor that is a view of the data set's memory"


def test_files_that_samples_open_are_told(tmp_path):
    class FromFile(Rows):
        def __getitem__(self, index):
            return torch.tensor(float(len((tmp_path / "rows.bin").read_bytes())))

    (tmp_path / "rows.bin").write_bytes(b"1234")
    assert str(tmp_path / "rows.bin") in looked_at(FromFile()).asked
