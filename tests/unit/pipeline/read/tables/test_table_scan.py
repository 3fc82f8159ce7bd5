"""What a scan reads at a time, and the names that columns may have."""

import pytest

import flatout
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
    assert [(piece.number, piece.num_rows()) for piece in scan.pieces] == [(0, 3)]
