"""What a scan reads at a time, the names that columns may have, and files that differ in the types of columns."""

import sys

import pytest

import flatout
from flatout.errors import BadTable
from flatout.pipeline.read.tables.table_files import found_files
from flatout.pipeline.read.tables.table_scan import TableScan

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def scan_of(path, columns=None):
    return TableScan(found_files(path, None), columns, None, None)


def test_large_rows_are_read_a_few_at_a_time(tmp_path):
    images = [bytes([at % 256]) * 400_000 for at in range(300)]
    table = pa.table({"image": pa.array(images, pa.binary()), "label": range(300)})
    pq.write_table(table, tmp_path / "x.parquet", use_dictionary=False)
    sizes = [len(image) for image, _ in scan_of(tmp_path / "x.parquet").batches()]
    assert sum(sizes) == 300 and max(sizes) <= 90
    assert [len(label) for (label,) in scan_of(tmp_path / "x.parquet", ["label"]).batches()] == [300]
    got = flatout.table(tmp_path / "x.parquet")
    assert all(got[at]["image"] == images[at] for at in (0, 128, 299))


@pytest.mark.parametrize("name", ["a.b", "a b", "a[0]", "", "größe", "'\"'"])
def test_columns_may_have_any_name(tmp_path, name):
    pq.write_table(pa.table({name: [1, 2, 3], "other": [4, 5, 6]}), tmp_path / "x.parquet")
    assert [row[name].item() for row in flatout.table(tmp_path / "x.parquet", [name])] == [1, 2, 3]
    assert [row[name].item() for row in flatout.table(tmp_path / "x.parquet", where=[("other", ">", 4)])] == [2, 3]


def test_what_files_tell_before_they_are_read(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1, 2, 3], pa.int32()), "t": ["x", "y", "z"]}), tmp_path / "x.parquet")
    scan = scan_of(tmp_path / "x.parquet")
    assert (scan.num_rows, scan.least_bytes) == (3, 12)
    assert [(piece.at, piece.number, piece.num_rows()) for piece in scan.pieces] == [(0, 0, 3)]


# -- files that differ in the type of a column ------------------------------------------------------------------------


def several(folder, *columns, **more):
    """Write a file for each array of column `x`; return their paths."""
    paths = [folder / f"{at}.parquet" for at in range(len(columns))]
    for at, (path, column) in enumerate(zip(paths, columns, strict=True)):
        named = {name: [value] * len(column) for name, value in more.items()}
        pq.write_table(pa.table({"file": [at] * len(column), "x": column, **named}), path)
    return paths


NARROW, WIDE = pa.array([0.1, 7.5], pa.float32()), pa.array([0.1, 1 / 3], pa.float64())
WHOLE = pa.array([3, 2**53 + 1], pa.int64())


@pytest.mark.parametrize("shuffle", [None, "window"])
@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ([NARROW, WIDE], "float64"),
        ([WIDE, NARROW], "float64"),
        ([pa.array([1, 2], pa.int8()), WIDE, NARROW], "float64"),
        ([pa.array([1, 2], pa.int8()), WHOLE], "int64"),
        ([pa.array(["5", "6"]), WHOLE, pa.array(["7"])], "int64"),
        ([WHOLE, pa.array(["0.1", "x"])], "string"),
    ],
    ids=["wider later", "wider first", "whole and not", "whole", "text", "to text"],
)
def test_a_value_never_goes_through_the_type_of_another_file(tmp_path, columns, kind, shuffle):
    paths = several(tmp_path, *columns)
    got = flatout.table(paths, {"x": kind}, shuffle=shuffle)
    wanted = [value.as_py() for column in columns for value in column.cast(kind)]
    assert [got[at]["x"] if kind == "string" else got[at]["x"].item() for at in range(len(got))] == wanted


def test_what_the_type_asked_for_has_no_room_for_is_still_said(tmp_path):
    paths = several(tmp_path, pa.array([1, 2], pa.int64()), WIDE)
    with pytest.raises(BadTable, match=r"'x' .double. cannot be int64"):
        flatout.table(paths, {"x": "int64"})


@pytest.mark.parametrize("shuffle", [None, "window"])
def test_a_condition_sees_values_as_each_file_has_them(tmp_path, shuffle):
    paths = several(tmp_path, pa.array([2**24, 5], pa.float32()), pa.array([2**24 + 1, 5], pa.int64()))
    got = flatout.table(paths, {"file": None, "x": "float64"}, where=[("x", ">", 2**24)], shuffle=shuffle)
    assert [(got[at]["file"].item(), got[at]["x"].item()) for at in range(len(got))] == [(1, 2**24 + 1)]


def test_columns_that_a_condition_does_not_read_may_differ(tmp_path):
    for at, kind in enumerate([pa.int64(), pa.string()]):
        table = pa.table({"id": pa.array([at], kind) if at == 0 else pa.array(["a"]), "valid_until": [at + 3]})
        pq.write_table(table, tmp_path / f"{at}.parquet")
    got = flatout.table(tmp_path, ["valid_until"], where=[("valid_until", ">", 3)])
    assert [row["valid_until"].item() for row in got] == [4]
    with pytest.raises(BadTable, match=r"'id' is string in .*1.parquet, and int64 in .*0.parquet"):
        flatout.table(tmp_path, ["valid_until"], where=[("id", ">", 3)])


# -- how work grows with the number of files --------------------------------------------------------------------------


def steps_of(function):
    """Return how many calls, of Python and of C, a function makes."""
    number = 0

    def counted(_frame, event, _given):
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(None)
    return number


def read_in_windows(paths):
    got = flatout.table(paths, ["x"], shuffle="window")
    assert [row["x"].item() for row in got.__getitems__(range(len(got)))] == [*range(len(paths))]


def read_whole(paths):
    assert len(flatout.table(paths, ["x"])) == len(paths)


@pytest.mark.parametrize("read", [read_in_windows, read_whole])
def test_twice_as_many_files_cost_twice_the_steps(tmp_path, read):
    paths = several(tmp_path, *([at] for at in range(64)))
    read(paths[:4])  # what is imported is imported
    steps = [steps_of(lambda number=number: read(paths[:number])) for number in (8, 32, 64)]
    assert steps[2] - steps[1] < 1.15 * 32 / 24 * (steps[1] - steps[0]), steps
