"""Tables of which a window is in memory: the rows that pyarrow lists, in an order of windows, or an error."""

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from torch.utils.data import DataLoader, default_collate

import flatout
from flatout.errors import BadTable
from flatout.pipeline.read.tables.windows import WindowSampler

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tests.unit.pipeline.read.tables.random_tables import rows_of, same_rows, tables
from tests.unit.pipeline.read.tables.test_table import numbers, place, plain_strings, written  # noqa: F401


@settings(max_examples=examples(60))
@given(tables(), st.integers(1, 7), st.integers(1, 3), st.booleans(), st.data())
def test_rows_are_those_that_pyarrow_lists(place, table, group, files, filtered, data):  # noqa: F811
    folder = written(place, plain_strings(table), group=group, files=files)
    where = [("row", ">=", 3)] if filtered else None
    got = flatout.table(folder, where=where, shuffle="window")
    wanted = rows_of(plain_strings(table).slice(3 if filtered else 0))
    assert len(got) == len(wanted)
    some = data.draw(st.lists(st.integers(-len(wanted), len(wanted) - 1), max_size=8)) if wanted else []
    assert same_rows(got.__getitems__(some), [wanted[at] for at in some])
    assert sorted(got.sampler()) == [*range(len(wanted))]


@pytest.fixture
def path(tmp_path):
    """A file of 10 row groups of 100 rows."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"row": pa.array(range(1000), pa.int64())}), path, row_group_size=100)
    return path


def test_a_window_is_in_memory_and_no_more(path):
    got = flatout.table(path, shuffle="window", max_bytes=4 * 800)
    loader = DataLoader(got, batch_size=50, sampler=got.sampler(torch.Generator().manual_seed(1)))
    batches = [batch["row"].tolist() for batch in loader]
    seen = [row for batch in batches for row in batch]
    assert sorted(seen) == [*range(1000)]
    assert len(got._held.held[1]) <= 4
    groups = [{row // 100 for row in batch} for batch in batches]
    assert all(len(each) <= 3 for each in groups[:6]) and max(map(len, groups)) > 1
    again = [row for batch in loader for row in batch["row"].tolist()]
    assert sorted(again) == [*range(1000)] and again != seen


def test_a_row_group_that_does_not_fit_is_an_error(path):
    with pytest.raises(BadTable, match="A row group of the table takes 800 B, and 700 B may be used"):
        flatout.table(path, shuffle="window", max_bytes=700)


def test_a_file_that_is_written_again_is_an_error(path):
    got = flatout.table(path, shuffle="window", max_bytes=2 * 800)
    assert got[5]["row"].item() == 5
    sent = pickle.dumps(got)
    assert len(sent) < 2000 and pickle.loads(sent)[17]["row"].item() == 17
    pq.write_table(pa.table({"row": pa.array(range(1000, 2000), pa.int64())}), path, row_group_size=100)
    with pytest.raises(BadTable, match=r"rows.parquet changed since the table was opened"):
        got[505]
    with pytest.raises(BadTable, match="Files of the table changed"):
        pickle.loads(sent)


def test_a_batch_of_several_row_groups_stays_in_order(tmp_path):
    table = pa.table(
        {
            "row": pa.array(range(60), pa.int32()),
            "small": pa.array(range(60), pa.uint16()),
            "v": pa.array([[at, -at] for at in range(60)], pa.list_(pa.float32())),
            "name": [f"n{at}" for at in range(60)],
            "pair": [{"a": at} for at in range(60)],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=7)
    got = flatout.table(tmp_path / "x.parquet", shuffle="window")
    order = torch.randperm(60).tolist()
    batch = default_collate(got.__getitems__(order))
    assert batch["row"].tolist() == batch["small"].tolist() == batch["pair"]["a"].tolist() == order
    assert batch["small"].dtype is torch.uint16 and batch["v"].tolist() == [[at, -at] for at in order]
    assert batch["name"] == [f"n{at}" for at in order]


def test_nulls_are_told_by_the_row_of_the_table(tmp_path):
    table = pa.table({"age": [1, 2, 3, None, 5, 6], "text": ["a"] * 6})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    got = flatout.table(tmp_path / "x.parquet", shuffle="window")
    with pytest.raises(BadTable, match=r"'age' is null in 1 of 6 rows of a batch \(row 3\)"):
        next(iter(DataLoader(got, batch_size=6)))


def test_what_is_asked_for_is_checked(path):
    with pytest.raises(ValueError, match="shuffle is 'all'; it must be None or 'window'"):
        flatout.table(path, shuffle="all")
    got = flatout.table(path, shuffle="window", transform=lambda row: row["row"] * 2)
    assert got[7].item() == 14 and len(got.sampler()) == 1000
    for index in (1000, -1001):
        with pytest.raises(IndexError, match="of a table of 1000 rows"):
            got[index]


@pytest.mark.parametrize("window", [1, 3, 20])
def test_the_order_is_of_windows_and_of_all_rows(window):
    order = [*WindowSampler([5, 0, 7, 4, 4], window, torch.Generator().manual_seed(0))]
    assert sorted(order) == [*range(20)] and len(WindowSampler([5, 0, 7], 1)) == 12
