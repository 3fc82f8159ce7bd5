"""The memory that a table takes while it is read: beforehand where it fits, and none where it goes to a file."""

import pytest
import torch

import flatout
from flatout.pipeline.read.tables import growing_array, table_scan
from flatout.pipeline.read.tables.collected_columns import CollectedColumns

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 4000


@pytest.fixture
def path(tmp_path):
    """A Parquet file of 4 row groups: numbers, text, and lists that are all as long."""
    path = tmp_path / "rows.parquet"
    lists = pa.array([[float(at)] * 16 for at in range(ROWS)], pa.list_(pa.float32()))
    table = pa.table({"row": range(ROWS), "text": ["some text"] * ROWS, "lists": lists})
    pq.write_table(table, path, row_group_size=ROWS // 4)
    return path


def rows(table):
    return [sample["row"].item() for sample in table]


@pytest.fixture
def taken(monkeypatch):
    """What was taken of memory before there was anything to put there, in bytes."""
    taken = []
    monkeypatch.setattr(growing_array, "populate", lambda tensor: taken.append(tensor.nbytes))
    return taken


@pytest.mark.parametrize(
    ("names", "max_bytes"),
    [(["row"], ROWS * 8 - 1), (["row", "lists"], ROWS * 8), (["row", "text"], ROWS * 8 - 1)],
    ids=["numbers", "lists of one length", "numbers and text"],
)
def test_no_memory_is_taken_for_a_table_that_does_not_fit(path, taken, names, max_bytes):
    got = flatout.table(path, names, max_bytes=max_bytes)
    assert "mapped from" in repr(got) and rows(got) == [*range(ROWS)] and taken == []


def test_memory_for_a_table_that_fits_is_taken_at_once(path, taken):
    got = flatout.table(path, ["row", "lists"], max_bytes=ROWS * 72)
    assert "in memory" in repr(got) and taken == [ROWS * 72] and rows(got) == [*range(ROWS)]


def test_a_table_that_files_say_does_not_fit_lies_in_files_from_the_start(path, monkeypatch):
    where = []
    add = CollectedColumns.add

    def told(collected, arrays):
        where.append(collected.in_memory)
        add(collected, arrays)

    monkeypatch.setattr(CollectedColumns, "add", told)
    assert rows(flatout.table(path, max_bytes=ROWS * 8 - 1)) == [*range(ROWS)]
    assert where and not any(where)


class _LittleMemory:
    """Torch, without memory for more than so many items."""

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, number, **more):
        if number > 10_000:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return torch.empty(number, **more)


def test_a_table_for_which_the_system_has_no_memory_is_mapped(path, monkeypatch):
    monkeypatch.setattr(growing_array, "torch", _LittleMemory())
    monkeypatch.setattr(table_scan, "_BATCH_ROWS", 500)
    got = flatout.table(path, ["row"], max_bytes=10**9)
    assert "mapped from" in repr(got) and rows(got) == [*range(ROWS)]
