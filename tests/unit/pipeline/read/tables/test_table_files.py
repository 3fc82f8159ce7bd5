"""The files that paths, folders, patterns and URLs name, and what the names of folders say.

Modules: flatout.pipeline.read.tables.folder_columns, flatout.pipeline.read.tables.table_formats.
"""

import os

import fsspec
import fsspec.implementations.memory
import pytest

import flatout
from flatout.errors import BadTable
from flatout.pipeline.read.tables.opened_table import FilesOfTable, TableRequest
from flatout.pipeline.read.tables.table_files import found_files, is_told_apart

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def put(path, first, number=3):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"row": range(first, first + number)}), path)
    return path


def rows(*paths, **more):
    return [row["row"].item() for row in flatout.table(*paths, **more)]


def test_folders_patterns_and_lists_are_read_in_the_order_of_names(tmp_path, monkeypatch):
    a, b = put(tmp_path / "b.parquet", 3), put(tmp_path / "a.parquet", 0)
    put(tmp_path / "_temporary" / "c.parquet", 90)
    put(tmp_path / ".hidden" / "d.parquet", 90)
    (tmp_path / "notes.txt").write_text("no table")
    assert rows(tmp_path) == rows(str(tmp_path / "*.parquet")) == [0, 1, 2, 3, 4, 5]
    assert rows([a, str(b)]) == [3, 4, 5, 0, 1, 2]
    monkeypatch.chdir(tmp_path)
    assert rows("a.parquet") == rows(f"file://{b}") == [0, 1, 2]


def test_names_of_folders_are_columns(tmp_path):
    put(tmp_path / "year=2024" / "place=a%20b" / "x.parquet", 0)
    put(tmp_path / "year=2025" / "place=__HIVE_DEFAULT_PARTITION__" / "x.parquet", 3)
    got = flatout.table(tmp_path)
    assert [(row["year"].item(), row["place"]) for row in got] == [(2024, "a b")] * 3 + [(2025, None)] * 3
    assert rows(tmp_path, ["row"], where=[("year", "=", 2025)]) == [3, 4, 5]
    assert rows(tmp_path, ["row"], where=[("year", "=", 2025), ("row", ">", 4)]) == [5]
    assert [*flatout.table(tmp_path / "year=2024" / "place=a%20b" / "x.parquet")[0]] == ["row"]
    wanted = pq.read_table(tmp_path).to_pylist()
    assert [row["row"] for row in wanted] == rows(tmp_path)


def test_numbers_with_zeros_before_them_stay_text(tmp_path):
    put(tmp_path / "code=007" / "x.parquet", 0, 1)
    put(tmp_path / "code=12" / "x.parquet", 1, 1)
    assert [row["code"] for row in flatout.table(tmp_path)] == ["007", "12"]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["99999999999999999999", "1"], ["99999999999999999999", "1"]),
        ([str(2**63), "1"], [str(2**63), "1"]),
        ([str(2**63 - 1), str(-(2**63))], [2**63 - 1, -(2**63)]),
        (["-0", "1"], ["-0", "1"]),
        (["-", "1"], ["-", "1"]),
        (["9" * 200], ["9" * 200]),
    ],
)
def test_numbers_of_more_than_64_bits_are_text(tmp_path, values, wanted):
    for at, value in enumerate(values):
        put(tmp_path / f"id={value}" / "x.parquet", at, 1)
    got = sorted(flatout.table(tmp_path), key=lambda row: row["row"].item())
    assert [row["id"] if isinstance(row["id"], str) else row["id"].item() for row in got] == wanted


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("data/year=*/x.parquet", ["row", "year"]),
        ("data/year=202?/x.parquet", ["row", "year"]),
        ("data/year=[12]02?/*.parquet", ["row", "year"]),
        ("data/*/*.parquet", ["row", "year"]),
        ("data/**/x.parquet", ["row", "year"]),
        ("data/year=2024/*.parquet", ["row"]),
        ("da?a/year=2024/x.parquet", ["row", "year"]),
    ],
)
def test_folders_above_the_first_sign_of_a_pattern_are_no_columns(tmp_path, pattern, names):
    top = tmp_path / "run=7"
    put(top / "data" / "year=2024" / "x.parquet", 0)
    got = flatout.table(top / pattern)
    assert [*got[0]] == names and len(got) == 3


def test_files_that_do_not_lie_alike_are_an_error(tmp_path):
    put(tmp_path / "year=2024" / "x.parquet", 0)
    put(tmp_path / "y.parquet", 0)
    with pytest.raises(BadTable, match="1 of 2 files lie in folders that do not name year"):
        flatout.table(tmp_path)


def test_the_format_is_that_of_the_suffix_or_of_the_first_bytes(tmp_path):
    bare = put(tmp_path / "part-0000", 0)
    assert rows(bare) == [0, 1, 2] == rows(bare, format="parquet")
    (tmp_path / "x.tsv").write_text("row\tname\n1\ta\n2\tb\n")
    assert [(row["row"].item(), row["name"]) for row in flatout.table(tmp_path / "x.tsv")] == [(1, "a"), (2, "b")]
    with pytest.raises(BadTable, match="2 files are of 2 formats: csv, parquet"):
        flatout.table([bare, tmp_path / "x.tsv"])
    (tmp_path / "other.bin").write_bytes(b"nothing known")
    with pytest.raises(BadTable, match="unknown"):
        flatout.table(tmp_path / "other.bin")


@pytest.mark.parametrize("path", ["none.parquet", "none/*.parquet", "folder"])
def test_nothing_there_is_an_error(tmp_path, path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadTable, match=r"cannot be read|0 files of a table found"):
        flatout.table(tmp_path / path)


def test_urls_are_opened_by_fsspec(tmp_path):
    with fsspec.open("memory://tables/x.parquet", "wb") as file:
        file.write(put(tmp_path / "x.parquet", 0).read_bytes())
    try:
        assert rows("memory://tables/x.parquet") == rows("memory://tables/*.parquet") == [0, 1, 2]
    finally:
        fsspec.filesystem("memory").rm("/tables", recursive=True)
    with pytest.raises(BadTable, match="no URL that fsspec knows"):
        flatout.table("nosuch://x.parquet")


def test_a_file_that_is_written_again_is_another_one(tmp_path):
    path = put(tmp_path / "x.parquet", 0)
    (file,) = found_files(path, None)
    before = file.identity()
    assert file.identity() == before and is_told_apart(before) and file.is_local
    os.replace(put(tmp_path / "y.parquet", 7), path)
    assert file.identity() != before
    path.unlink()
    with pytest.raises(BadTable, match="cannot be read"):
        file.identity()


class _Counting(fsspec.implementations.memory.MemoryFileSystem):
    """Files in memory, with a count of how often they are asked about."""

    protocol, cachable, asked = "counting", False, []

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("counting://", "memory://"))

    def info(self, path, **more):
        self.asked.append(path)
        return super().info(path, **more)


def test_a_remote_file_is_asked_about_once_before_it_is_read_and_once_after_it(tmp_path):
    fsspec.register_implementation("counting", _Counting, clobber=True)
    content = put(tmp_path / "x.parquet", 0).read_bytes()
    for name in "abc":
        fsspec.filesystem("memory").pipe(f"/asked/{name}.parquet", content)
    try:
        request = TableRequest("counting://asked/*.parquet")
        _Counting.asked.clear()
        files = FilesOfTable.now(request)
        assert files.key(request) and files.changed == []
        named = [path for path in _Counting.asked if path.endswith(".parquet")]
        assert len(files.files) == 3 and sorted(named) == sorted([file.path for file in files.files] * 2)
    finally:
        fsspec.filesystem("memory").rm("/asked", recursive=True)
