"""Files that change by a way which no kernel tells under the name that samples read: the next batch has the change."""

import os
import sqlite3

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import flatout

ROWS = 24


class Rows(Dataset):
    """Rows of a file of numbers, found anew under its name for each sample."""

    def __init__(self, name):
        self.name = str(name)

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        sum(range(3000))
        return torch.from_numpy(np.fromfile(self.name, dtype=np.float64)[index : index + 1])


class Numbered(Rows):
    """The same by the number of a file that is open."""

    def __init__(self, name):
        super().__init__(name)
        self.file = os.open(name, os.O_RDONLY)

    def __getitem__(self, index):
        return torch.frombuffer(bytearray(os.pread(self.file, 8, 8 * index)), dtype=torch.float64)


class Selected(Rows):
    """Rows of a data base, by a connection that the first sample opens."""

    base = None

    def __getitem__(self, index):
        if self.base is None:
            self.base = sqlite3.connect(self.name)
        (value,) = self.base.execute("select value from rows where number = ?", (index,)).fetchone()
        return torch.tensor(value)


def written_through_a_map(folder):
    np.memmap(folder / "a/b/rows.bin", dtype=np.float64, mode="r+")[:] += 100


def written_under_another_name(folder):
    with open(folder / "other.bin", "r+b") as file:
        file.write(np.full(ROWS, 7.0).tobytes())


def folder_above_renamed(folder):
    os.rename(folder / "a", folder / "old")
    (folder / "a/b").mkdir(parents=True)
    np.full(ROWS, 8.0).tofile(folder / "a/b/rows.bin")


WAYS = (written_through_a_map, written_under_another_name, folder_above_renamed)


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    np.arange(ROWS, dtype=np.float64).tofile(tmp_path / "a/b/rows.bin")
    os.link(tmp_path / "a/b/rows.bin", tmp_path / "other.bin")
    return tmp_path / "a/b/rows.bin"


def values(loader):
    return [batch.tolist() for batch in loader]


def compiled(data):
    loader = flatout.compile_loader(DataLoader(data, batch_size=6))
    before = [values(loader) for _ in range(4)]
    assert before[0] == before[-1]
    return loader, before[0]


@pytest.mark.parametrize("change", WAYS)
@pytest.mark.slow
def test_it_is_in_the_next_batch(change, rows, tmp_path):
    loader, before = compiled(Rows(rows))
    assert "kept" in flatout.explain(loader)
    walked = iter(loader)
    next(walked)
    change(tmp_path)
    plain = values(DataLoader(Rows(rows), batch_size=6))
    assert plain != before
    assert values(walked) == plain[1:]
    assert values(loader) == plain


@pytest.mark.parametrize("change", WAYS)
def test_of_many_files_it_is_found_when_the_next_pass_begins(change, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("flatout.watch.files.read_files._FEW", 0)
    loader, before = compiled(Rows(rows))
    change(tmp_path)
    assert values(loader) == values(DataLoader(Rows(rows), batch_size=6)) != before


def test_a_change_within_a_pass_over_many_files_is_said(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("flatout.watch.files.read_files._FEW", 0)
    loader, _ = compiled(Rows(rows))
    walked = iter(loader)
    next(walked)
    written_through_a_map(tmp_path)
    with pytest.raises(flatout.errors.ChangedTooLate, match=r"rows\.bin"):
        values(walked)


def test_content_is_compared_where_times_of_files_may_stand_still(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("flatout.watch.files.read_files._lies_in_memory", lambda name: True)
    monkeypatch.setattr(
        "flatout.watch.files.read_files._whole_mark",
        lambda name: (1, 1, os.path.getsize(name)) if os.path.isfile(name) else None,
    )
    loader, before = compiled(Rows(rows))
    written_through_a_map(tmp_path)
    assert values(loader) == values(DataLoader(Rows(rows), batch_size=6)) != before


def test_an_open_file_that_is_read_by_its_number_is_left_alone(rows, tmp_path):
    loader, before = compiled(Numbered(rows))
    assert "reads an open file by its number (os.pread)" in flatout.explain(loader)
    written_under_another_name(tmp_path)
    assert values(loader) != before


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_data_base_that_another_connection_writes(journal, tmp_path):
    name = tmp_path / "rows.db"
    writer = sqlite3.connect(name)
    writer.execute(f"pragma journal_mode = {journal}")
    writer.execute("create table rows (number integer primary key, value real)")
    writer.executemany("insert into rows values (?, ?)", [(number, number / 2) for number in range(ROWS)])
    writer.commit()
    loader, before = compiled(Selected(name))
    writer.execute("update rows set value = value + 1000")
    writer.commit()
    assert values(loader) == values(DataLoader(Selected(name), batch_size=6)) != before
    writer.close()


class Mapped(Rows):
    """Rows of a memory map that the data set holds."""

    def __init__(self, name):
        super().__init__(name)
        self.rows = np.memmap(name, dtype=np.float64, mode="r")

    def __getitem__(self, index):
        sum(range(3000))
        return torch.from_numpy(self.rows[index : index + 1] * 2)


@pytest.mark.parametrize("change", WAYS[:2])
def test_a_map_that_the_data_set_holds_is_in_the_next_batch(change, rows, tmp_path):
    data = Mapped(rows)
    loader, before = compiled(data)
    walked = iter(loader)
    next(walked)
    change(tmp_path)
    plain = values(DataLoader(data, batch_size=6))
    assert plain != before
    assert values(walked) == plain[1:]
    assert values(loader) == plain
