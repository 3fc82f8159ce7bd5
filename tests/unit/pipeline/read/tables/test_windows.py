"""Tables of which a window is in memory: the rows that pyarrow lists, in an order of windows, or an error."""

import gc
import io
import pickle
import weakref

import fsspec
import pytest
import torch
from fsspec.asyn import AsyncFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from torch.utils.data import DataLoader, default_collate

import flatout
from flatout.errors import BadTable
from flatout.pipeline.read.tables import windows
from flatout.pipeline.read.tables.table_scan import TablePiece
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


@pytest.fixture
def alive(monkeypatch):
    """The bytes of all row groups that are in memory whenever one begins to be read."""
    columns, alive = weakref.WeakSet(), []

    class Seen(windows.TableColumns):
        def __init__(self, *given):
            super().__init__(*given)
            columns.add(self)

    batches = TablePiece.batches

    def read(piece):
        alive.append(sum(each.num_bytes for each in columns))
        return batches(piece)

    monkeypatch.setattr(windows, "TableColumns", Seen)
    monkeypatch.setattr(TablePiece, "batches", read)
    return alive


@pytest.mark.parametrize("groups", [1, 2, 3, 4])
@pytest.mark.parametrize("whole", [False, True], ids=["by the sampler", "over the whole table"])
def test_row_groups_are_let_go_before_another_is_read(path, alive, groups, whole):
    got = flatout.table(path, shuffle="window", max_bytes=groups * 800)
    sampler = None if whole else got.sampler(torch.Generator().manual_seed(1))
    for batch in DataLoader(got, batch_size=50, sampler=sampler, shuffle=whole):
        assert len(batch["row"]) == 50
        assert sum(columns.num_bytes for columns in got._held.held[1].values()) <= groups * 800
    assert len(alive) >= 10 and max(alive) <= (groups - 1) * 800


def test_windows_are_as_large_as_the_largest_row_groups_allow(tmp_path):
    schema = pa.schema([("row", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(tmp_path / "x.parquet", schema, use_dictionary=False) as file:
        for at in range(30):  # few rows take the most
            few = at % 3 == 0
            number = 10 if few else 100
            text = [chr(97 + at % 26) * (5000 if few else 1)] * number
            file.write_table(pa.table({"row": [at] * number, "text": text}, schema))
    most = 4 * 10 * 5024
    got = flatout.table(tmp_path / "x.parquet", shuffle="window", max_bytes=most)
    seen = []
    for batch in DataLoader(got, batch_size=64, sampler=got.sampler()):
        seen += batch["row"].tolist()
        assert sum(columns.num_bytes for columns in got._held.held[1].values()) <= most
    assert sorted(seen) == [at for at in range(30) for _ in range(10 if at % 3 == 0 else 100)]
    assert got._window <= 3


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


class _Shop(AsyncFileSystem):
    """Files in memory behind a loop of its own, as s3fs, gcsfs and adlfs have one: no use to a forked process."""

    protocol, files = "shop", {}

    async def _info(self, path, **_):
        name = self._strip_protocol(path)
        if name not in self.files:
            raise FileNotFoundError(name)
        return {"name": name, "size": len(self.files[name]), "type": "file", "ETag": hash(self.files[name])}

    async def _cat_file(self, path, start=None, end=None, **_):
        return self.files[self._strip_protocol(path)][start:end]

    def _open(self, path, mode="rb", **_):
        return io.BytesIO(self.cat_file(path))


@pytest.fixture
def shop(path):
    fsspec.register_implementation("shop", _Shop, clobber=True)
    _Shop.files["rows.parquet"] = path.read_bytes()
    yield "shop://rows.parquet"
    _Shop.files.clear()


@pytest.mark.parametrize("where", [None, [("row", ">=", 500)]])
def test_forked_workers_read_a_remote_table_by_a_file_system_of_their_own(shop, where):
    got = flatout.table(shop, shuffle="window", max_bytes=4 * 800, where=where)
    loader = DataLoader(
        got, batch_size=50, sampler=got.sampler(), num_workers=1, multiprocessing_context="fork", timeout=300
    )
    for _ in range(2):
        rows = [row for batch in loader for row in batch["row"].tolist()]
        assert sorted(rows) == [*range(500 if where else 0, 1000)]
    assert got[3]["row"].item() == (503 if where else 3)


def said_by(loader):
    """Return what is wrong with a table, and let the loader's workers go, which the error's traceback holds."""
    said = ""
    try:
        list(loader)
    except BadTable as error:
        said = str(error)
    gc.collect()  # torch's own frame refers to the error that it raised
    return said


def written_again(_worker):
    _Shop.files["rows.parquet"] += b"more"


def test_a_remote_file_that_is_written_again_is_an_error_in_workers_too(shop):
    got = flatout.table(shop, shuffle="window", max_bytes=4 * 800)
    loader = DataLoader(
        got, 50, num_workers=1, multiprocessing_context="fork", worker_init_fn=written_again, timeout=300
    )
    assert "changed since the table was opened" in said_by(loader)
