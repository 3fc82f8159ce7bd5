"""Rows of random tables, however they are written, chosen, kept and loaded, are those that pyarrow lists.

Modules: flatout.pipeline.read.tables.arrow_memory, flatout.pipeline.read.tables.column_kinds,
flatout.pipeline.read.tables.collected_columns, flatout.pipeline.read.tables.growing_array,
flatout.pipeline.read.tables.table_columns, flatout.pipeline.read.tables.table_rows.
"""

import copy
import itertools
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from torch.utils.data import DataLoader, Subset, default_collate

import flatout
from flatout.errors import BadTable

pa = pytest.importorskip("pyarrow")

import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
from tests.unit.pipeline.read.tables.random_tables import columns, rows_of, same, same_rows, tables

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker")

numbers = itertools.count()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


def written(place, table, *, group=5, files=1, kind="parquet"):
    """Write a table to a new folder; return that."""
    folder = place / str(next(numbers))
    folder.mkdir()
    each = -(-max(1, table.num_rows) // files)
    for at in range(files):
        part = table.slice(at * each, each)
        if kind == "parquet":
            pq.write_table(part, folder / f"{at}.parquet", row_group_size=group)
        else:
            pa.feather.write_feather(part, folder / f"{at}.arrow", "lz4", chunksize=group)
    return folder


def plain_strings(table):
    """Return the table without views, which Parquet files of this pyarrow do not have."""
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [field.with_type(views.get(field.type, field.type)) for field in table.schema]
    return table.cast(pa.schema(fields))


@settings(max_examples=examples(120))
@given(
    tables(),
    st.sampled_from(["parquet", "arrow"]),
    st.integers(1, 7),
    st.integers(1, 3),
    st.sampled_from([None, 0, 150]),
    st.data(),
)
def test_rows_are_those_that_pyarrow_lists(place, table, kind, group, files, max_bytes, data):
    table = plain_strings(table) if kind == "parquet" else table
    folder = written(place, table, group=group, files=files, kind=kind)
    names = data.draw(st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
    least = data.draw(st.none() | st.integers(0, 12))
    where = None if least is None else [("row", ">=", least)]
    cache = place / "cache" if max_bytes == 0 else None
    got = flatout.table(folder, names, where=where, max_bytes=max_bytes, folder=cache)
    wanted = rows_of(table.slice(least or 0).select(names))
    assert len(got) == len(wanted)
    assert same_rows(list(got), wanted)
    order = data.draw(st.lists(st.integers(-len(wanted), len(wanted) - 1), max_size=6)) if wanted else []
    assert same_rows(list(got.__getitems__(order)), [wanted[at] for at in order])
    again = pickle.loads(pickle.dumps(got))
    assert same_rows(list(again), wanted)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.list_(pa.string_view())], ids=str)
@pytest.mark.parametrize("shuffle", [None, "window"])
def test_columns_of_views_can_be_filtered(tmp_path, kind, shuffle):
    values = (
        [["a", None], None, ["ccc"], []] if pa.types.is_list(kind) else ["a", None, "a longer text than twelve", ""]
    )
    table = pa.table({"row": [0, 1, 2, 3], "text": pa.array(values, kind)})
    folder = written(tmp_path, table, group=2, files=2, kind="arrow")
    more = {} if shuffle is None else {"shuffle": shuffle}
    got = flatout.table(folder, where=[("row", ">=", 1)], **more)
    assert same_rows(list(got), rows_of(table.slice(1)))


@settings(max_examples=examples(60))
@given(tables(), st.integers(1, 4), st.sampled_from(["in memory", "mapped", "window"]))
def test_a_batch_is_what_collating_its_rows_makes(place, table, size, way):
    folder = written(place, plain_strings(table), group=2)
    if way == "window":
        got = flatout.table(folder, shuffle="window")
    else:
        got = flatout.table(folder, max_bytes=0 if way == "mapped" else None, folder=place / "cache")
    generator = torch.Generator().manual_seed(table.num_rows)
    order = torch.randperm(len(got), generator=generator).tolist()
    for start in range(0, len(order), size):
        some = order[start : start + size]
        rows = [dict(got[at]) for at in some]
        try:
            wanted = None if any(None in row.values() for row in rows) else default_collate(rows)
        except (TypeError, RuntimeError):  # decimals, lists of several lengths
            wanted = None
        if wanted is None:  # torch refuses nulls, too, but for those of text behind a first row that has some
            with pytest.raises((TypeError, RuntimeError, BadTable)):
                default_collate(got.__getitems__(some))
            continue
        made = default_collate(got.__getitems__(some))
        assert bits(made) == bits(wanted)


def bits(value):
    """Return what tells values apart: types, shapes and bits."""
    if isinstance(value, torch.Tensor):
        flat = value.contiguous().view(-1)
        numbers = flat.view(torch.uint8).tolist() if flat.numel() else []
        return str(value.dtype), tuple(value.shape), value.stride(), numbers
    if isinstance(value, dict):
        return {key: bits(one) for key, one in value.items()}
    return [bits(one) for one in value] if isinstance(value, list | tuple) else (type(value), value)


@pytest.fixture(scope="module")
def people(place):
    """A table of numbers and text, 500 rows in 3 files, with the folder that it lies in."""
    table = pa.table(
        {
            "row": pa.array(range(500), pa.int64()),
            "x": pa.array([at / 7 for at in range(500)], pa.float32()),
            "v": pa.array([[at, -at] for at in range(500)], pa.list_(pa.int16())),
            "name": [f"name {at}" for at in range(500)],
        }
    )
    return written(place, table, group=60, files=3), rows_of(table)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["", "fork", "spawn"])
@pytest.mark.parametrize("max_bytes", [None, 0], ids=["in memory", "mapped"])
def test_loaders_give_the_same_batches(people, place, start, max_bytes):
    folder, rows = people
    got = flatout.table(folder, max_bytes=max_bytes)
    more = {"num_workers": 2, "multiprocessing_context": start} if start else {}
    loader = DataLoader(got, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(1), **more)
    seen = []
    for batch in loader:
        assert batch["x"].dtype is torch.float32 and batch["v"].dtype is torch.int16
        for at, row in enumerate(batch["row"].tolist()):
            one = {"row": row, "x": batch["x"][at].item(), "v": batch["v"][at].tolist(), "name": batch["name"][at]}
            assert same(one, rows[row])
            seen.append(row)
    assert sorted(seen) == list(range(500)) != seen


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [None, 0], ids=["in memory", "mapped"])
@pytest.mark.parametrize("names", [["row", "x", "v"], ["row", "name"]], ids=["numbers", "text"])
def test_compiled_loaders_give_the_plain_batches(people, place, max_bytes, names):
    folder, _ = people
    got = flatout.table(folder, names, max_bytes=max_bytes, folder=place / "cache")

    def batches(loader):
        torch.manual_seed(3)
        return [bits(batch) for _ in range(3) for batch in loader]

    subset = Subset(got, range(400, 3, -2))
    for data in (got, subset):
        loader = DataLoader(data, batch_size=17, shuffle=True)
        compiled = flatout.compile_loader(DataLoader(data, batch_size=17, shuffle=True))
        assert batches(compiled) == batches(loader)
        assert "left as it is" not in flatout.explain(compiled)
        if "name" not in names:
            assert "made in batches" in flatout.explain(compiled)


def test_a_transform_makes_the_sample(people):
    folder, rows = people

    def pair(row):
        return row["x"] * 2, row["row"]

    got = flatout.table(folder, transform=pair)
    assert got[3][0].item() == 2 * rows[3]["x"]
    doubled, numbers = next(iter(DataLoader(got, batch_size=4)))
    assert numbers.tolist() == [0, 1, 2, 3] and doubled.dtype is torch.float32
    assert [row.item() for _, row in got.__getitems__([7, -1])] == [7, 499]


def test_rows_that_somebody_changed_are_collated_as_changed(people):
    folder, _ = people
    got = flatout.table(folder, ["row", "x"])
    rows = got.__getitems__([5, 6])
    rows[0]["x"] = torch.tensor(100.0)
    assert default_collate(rows)["x"].tolist()[0] == 100.0
    rows = got.__getitems__([5, 6])
    for row in rows:
        row["new"] = 1
    assert default_collate(rows)["new"].tolist() == [1, 1]
    assert got[5]["x"].item() != 100.0


def as_it_is(rows):
    return rows


@pytest.mark.parametrize("workers", [0, 1])
def test_rows_may_be_handed_on_as_they_are(people, workers):
    folder, rows = people
    loader = DataLoader(flatout.table(folder), batch_size=3, collate_fn=as_it_is, num_workers=workers)
    for at, batch in zip(range(0, 9, 3), loader, strict=False):
        assert same_rows(batch, rows[at : at + 3])
    assert same_rows(copy.deepcopy(flatout.table(folder).__getitems__([4])), [rows[4]])


def test_samples_are_memory_of_their_own(people):
    folder, rows = people
    got = flatout.table(folder, ["x", "v"])
    got[4]["x"].fill_(9.0)
    got.__getitems__([4])[0]["v"].zero_()
    default_collate(got.__getitems__([4, 5]))["v"].zero_()
    assert got[4]["x"].item() == rows[4]["x"] and got[4]["v"].tolist() == rows[4]["v"]


def test_what_is_no_row_is_an_index_error(people):
    got = flatout.table(people[0], ["row"])
    for index in (500, -501):
        with pytest.raises(IndexError, match="of a table of 500 rows"):
            got[index]
        with pytest.raises(IndexError, match="of a table of 500 rows"):
            got.__getitems__([0, index])
    with pytest.raises(TypeError):
        got["row"]
    assert got[torch.tensor(3)]["row"].item() == 3


def test_nulls_of_a_batch_are_an_error_that_says_which(place):
    folder = written(place, pa.table({"age": [1, None, 3], "name": ["a", "b", None]}))
    got = flatout.table(folder, ["age"])
    assert got[1]["age"] is None and got[0]["age"].item() == 1
    with pytest.raises(BadTable, match=r"'age' is null in 1 of 3 rows of a batch \(row 1\)"):
        next(iter(DataLoader(got, batch_size=3)))
    with pytest.raises(BadTable, match=r"'name' is null in 1 of 3 rows of a batch \(row 2\)"):
        next(iter(DataLoader(flatout.table(folder, ["name"]), batch_size=3)))
    there = flatout.table(folder, where=pa.compute.field("age").is_valid() & pa.compute.field("name").is_valid())
    assert next(iter(DataLoader(there, batch_size=3)))["age"].tolist() == [1]


@pytest.mark.parametrize("shuffle", [None, "window"])
def test_a_null_within_a_tensor_makes_lists_of_its_shape(place, shuffle):
    kind = pa.fixed_shape_tensor(pa.int32(), (2, 3))
    stored = pa.array([[1, 2, 3, 4, 5, 6], [7, 8, 9, None, 11, 12], None], kind.storage_type)
    table = pa.table({"t": pa.ExtensionArray.from_storage(kind, stored)})
    got = flatout.table(written(place, table), shuffle=shuffle)
    assert got[0]["t"].tolist() == [[1, 2, 3], [4, 5, 6]] and got[0]["t"].dtype is torch.int32
    assert got[1]["t"] == [[7, 8, 9], [None, 11, 12]] and got[2]["t"] is None
    assert [row["t"] for row in got.__getitems__([1, 2])] == [[[7, 8, 9], [None, 11, 12]], None]
    with pytest.raises(BadTable, match="'t' is null in 1 of 2 rows of a batch"):
        default_collate(got.__getitems__([0, 2]))


def test_columns_are_turned_into_the_types_that_are_asked_for(place):
    folder = written(place, pa.table({"price": pa.array(["1.25", "2.50"]).cast(pa.decimal128(8, 2)), "n": [1, 300]}))
    got = flatout.table(folder, {"price": "float64", "n": "float32"})
    batch = next(iter(DataLoader(got, batch_size=2)))
    assert batch["price"].tolist() == [1.25, 2.5] and batch["n"].dtype is torch.float32
    with pytest.raises(BadTable, match=r"'n' .int64. cannot be int8"):
        flatout.table(folder, {"n": pa.int8()})
    with pytest.raises(BadTable, match="'n' cannot be 'number'"):
        flatout.table(folder, {"n": "number"})


@settings(max_examples=examples(40))
@given(st.integers(1, 6), st.lists(st.integers(0, 3), min_size=8, max_size=30), st.sampled_from([None, 0, 60]))
def test_lists_that_begin_with_one_length_may_go_on_with_others(place, length, later, max_bytes):
    lists = [[float(at)] * length for at in range(8)] + [[1.0] * size for size in later]
    table = pa.table({"row": pa.array(range(len(lists)), pa.int32()), "v": pa.array(lists, pa.list_(pa.float32()))})
    folder = written(place, table, group=4, kind="arrow")
    got = flatout.table(folder, max_bytes=max_bytes, folder=place / "cache")
    assert same_rows(list(got), rows_of(table))


def test_copies_share_the_columns(people):
    got = flatout.table(people[0], ["row"])
    for other in (copy.copy(got), copy.deepcopy(got)):
        assert other._columns is got._columns and other[3]["row"].item() == 3


@settings(max_examples=examples(30))
@given(st.integers(1, 9).flatmap(lambda number: columns(number)))
def test_csv_is_read_as_pyarrow_reads_it(place, column):
    table = pa.table({"row": range(len(column)), "text": [f"t{at}" for at in range(len(column))]})
    if pa.types.is_primitive(column.type) and not pa.types.is_temporal(column.type):
        table = table.append_column("c", column)
    path = place / f"{next(numbers)}.csv"
    pyarrow.csv.write_csv(table, path)
    wanted = pyarrow.csv.read_csv(path)
    assert same_rows(list(flatout.table(path)), rows_of(wanted))


def test_tables_lie_in_the_memory_of_the_cpu_whatever_the_usual_device_is(people, place):
    folder, rows = people
    with torch.device("meta"):
        got = flatout.table(folder, max_bytes=0, folder=place / "device")
        batch = default_collate(got.__getitems__([1, 2]))
        first = got[1]
    assert batch["row"].tolist() == [1, 2] and same_rows([first], [rows[1]])
    with torch.device("meta"):
        assert same_rows([flatout.table(folder)[1]], [rows[1]])
