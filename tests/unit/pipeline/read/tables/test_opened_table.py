"""What is wrong with files, disks and other processes is an error that says so, or makes no difference: no wrong rows.

Modules: flatout.pipeline.read.tables.table_scan, flatout.pipeline.read.tables.table_store.
"""

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
import torch

import flatout
from flatout.errors import BadTable
from flatout.pipeline.read.tables import growing_array, opened_table, table_store
from flatout.pipeline.read.tables.table_scan import TableScan

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 4000


def numbered(first=0, number=ROWS, kind=None):
    return pa.table({"row": pa.array(range(first, first + number), kind or pa.int64()), "text": ["some text"] * number})


def rows(table):
    return [sample["row"].item() for sample in table]


@pytest.fixture
def path(tmp_path):
    """A Parquet file of 4 row groups."""
    path = tmp_path / "rows.parquet"
    pq.write_table(numbered(), path, row_group_size=ROWS // 4, compression="snappy", use_dictionary=False)
    return path


def entries(folder):
    return sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [0, 2, 3])
@pytest.mark.parametrize("checked", [False, True], ids=["", "with checksums of pages"])
def test_a_damaged_row_group_is_named(tmp_path, group, checked):
    path = tmp_path / "rows.parquet"
    more = {"write_page_checksum": checked, "compression": "none" if checked else "snappy"}
    pq.write_table(numbered(), path, row_group_size=ROWS // 4, use_dictionary=False, **more)
    at = pq.ParquetFile(path).metadata.row_group(group).column(0)
    with path.open("r+b") as file:
        file.seek(at.data_page_offset + at.total_compressed_size // 2)
        file.write(b"\xff" * 200)
    with pytest.raises(BadTable, match=f"rows.parquet, row group {group} cannot be read"):
        flatout.table(path)


def test_a_file_that_is_cut_off_is_named(path):
    os.truncate(path, path.stat().st_size - 10)
    with pytest.raises(BadTable, match=r"rows.parquet cannot be read.*damaged, cut off"):
        flatout.table(path)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (numbered(0, 5, pa.int32()), "'row' is int32 in .*b.parquet, and int64 in .*rows.parquet"),
        (pa.table({"text": ["a"]}), "'row' is missing in .*b.parquet, and int64 in"),
        (pa.table({"row": ["a"], "text": ["a"]}), "'row' is string in .*b.parquet"),
    ],
    ids=["narrower", "missing", "text"],
)
def test_files_of_several_schemas_are_named(path, other, said):
    pq.write_table(other, path.with_name("b.parquet"))
    with pytest.raises(BadTable, match=said):
        flatout.table([path, path.with_name("b.parquet")])
    with pytest.raises(BadTable, match=said):  # a condition reads it, too
        flatout.table([path, path.with_name("b.parquet")], ["text"], where=[("row", ">=", 0)])
    assert len(flatout.table([path, path.with_name("b.parquet")], ["text"])) == ROWS + len(other)


def test_a_type_that_is_asked_for_makes_files_alike(path):
    pq.write_table(numbered(ROWS, 5, pa.int32()), path.with_name("b.parquet"))
    got = flatout.table([path, path.with_name("b.parquet")], {"row": "int64"})
    assert rows(got) == [*range(ROWS + 5)]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"columns": ["row", "age"]}, r"1 of 2 columns are missing in .*'age'.*It has 'row', 'text'"),
        ({"columns": []}, "0 columns are chosen"),
        ({"columns": ["row", "row"]}, "'row' is there more than once"),
        ({"where": [("age", ">", 3)]}, "where= does not suit the table: .*Its columns are 'row', 'text'"),
        ({"where": [("row", "like")]}, "is no condition"),
        ({"format": "csv2"}, "4?1 files are of 1 formats: csv2"),
    ],
)
def test_what_is_asked_for_and_is_not_there_is_said(path, more, said):
    with pytest.raises(BadTable, match=said):
        flatout.table(path, **more)


def test_columns_are_no_text(path):
    with pytest.raises(TypeError, match="columns is 'row'; it must be a list of names"):
        flatout.table(path, "row")


def test_lists_that_are_changed_afterwards_change_nothing(path):
    paths, names = [path], ["row"]
    got = flatout.table(paths, names)
    paths.append("nothing")
    names.append("nothing")
    assert rows(pickle.loads(pickle.dumps(got))) == [*range(ROWS)]


def test_a_file_that_is_written_again_while_it_is_read_is_an_error(path, monkeypatch):
    batches = TableScan.batches

    def replaced_meanwhile(scan):
        yield from batches(scan)
        pq.write_table(numbered(7), path, use_dictionary=False)

    monkeypatch.setattr(TableScan, "batches", replaced_meanwhile)
    with pytest.raises(BadTable, match=r"1 files changed while the table was read .*rows.parquet"):
        flatout.table(path)


@pytest.mark.parametrize("max_bytes", [None, 0], ids=["in memory", "mapped"])
def test_a_table_stays_as_it_was_opened_when_its_file_is_replaced(path, tmp_path, max_bytes):
    got = flatout.table(path, max_bytes=max_bytes, folder=tmp_path / "cache")
    pq.write_table(numbered(7), path, use_dictionary=False)
    assert rows(got) == [*range(ROWS)]
    assert rows(flatout.table(path, max_bytes=max_bytes, folder=tmp_path / "cache"))[0] == 7


def test_another_process_has_these_rows_or_an_error(path, monkeypatch):
    got = flatout.table(path)
    sent = pickle.dumps(got)
    assert len(sent) < 2000
    pq.write_table(numbered(7), path, use_dictionary=False)
    assert rows(pickle.loads(sent)) == [*range(ROWS)]  # of what was kept for it
    monkeypatch.setattr(table_store.TableStore, "find", lambda *_: None)
    with pytest.raises(BadTable, match="1 files changed since the table was opened"):
        pickle.loads(sent)


def test_a_file_that_has_just_been_written_is_waited_for(path, tmp_path):
    os.utime(path, ns=(time.time_ns(), time.time_ns()))
    begun = time.time_ns()
    flatout.table(path)
    assert time.time_ns() - path.stat().st_mtime_ns > 0.04e9 or begun - path.stat().st_mtime_ns > 0.04e9


# -- disks and other processes --------------------------------------------------------------------------------------


def test_a_table_is_found_by_the_next_process_and_others_are_not(path, tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    assert "mapped from" in repr(flatout.table(path, folder=folder))
    kept = entries(folder)
    assert len(kept) == 1 and kept[0].endswith(".samples")
    monkeypatch.setattr(opened_table, "_read", None)  # nothing is read any more
    assert rows(flatout.table(path, folder=folder)) == [*range(ROWS)]
    for other in ({"columns": ["row"]}, {"where": [("row", "<", 5)]}, {"columns": {"row": "int32"}}):
        with pytest.raises(TypeError, match="NoneType"):
            flatout.table(path, folder=folder, **other)


def test_a_damaged_entry_is_made_anew(path, tmp_path):
    folder = tmp_path / "cache"
    flatout.table(path, folder=folder)
    (entry,) = (folder / name for name in entries(folder))
    with entry.open("r+b") as file:
        file.seek(8192)
        file.write(b"\1\2\3")
    assert rows(flatout.table(path, folder=folder)) == [*range(ROWS)]


def test_ranks_have_one_file(path, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    first, second = flatout.table(path), flatout.table(path)
    assert "mapped from" in repr(first) and "mapped from" in repr(second)
    assert len(entries(table_store.usual_folder())) >= 1


class _FullDisk:
    """Writes like `os`, until so many bytes were written."""

    def __init__(self, num_bytes):
        self.left = num_bytes

    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, file, data):
        self.left -= len(data)
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(file, data)


@pytest.mark.parametrize("num_bytes", [0, 20_000])
def test_a_full_disk_is_said_and_nothing_stays(path, tmp_path, monkeypatch, num_bytes):
    monkeypatch.setattr(growing_array, "os", _FullDisk(num_bytes))
    with pytest.raises(BadTable, match=r"The disk of .*cache is full: .* are left, after .* of the table"):
        flatout.table(path, max_bytes=100, folder=tmp_path / "cache")
    assert entries(tmp_path / "cache") == []


def test_a_table_for_which_the_cache_has_no_room_is_served_all_the_same(path, tmp_path, monkeypatch):
    monkeypatch.setattr(table_store.TableStore, "_max_bytes", lambda _: 10)
    got = flatout.table(path, max_bytes=0, folder=tmp_path / "cache")
    assert "end with the process (not kept: they take" in repr(got) and rows(got) == [*range(ROWS)]
    got = flatout.table(path, folder=tmp_path / "cache")
    assert "in memory (not kept: they take" in repr(got) and rows(got) == [*range(ROWS)]
    assert rows(pickle.loads(pickle.dumps(got))) == [*range(ROWS)]  # read again, from the same files
    assert entries(tmp_path / "cache") == []


def test_a_folder_that_cannot_be_written_is_said(path, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(BadTable, match=r"cache cannot be written .*folder="):
        flatout.table(path, max_bytes=0, folder=tmp_path / "cache")


# -- locks ----------------------------------------------------------------------------------------------------------


def test_no_locks_stay_in_the_folder(path, tmp_path):
    flatout.table(path, folder=tmp_path / "cache")
    assert [name for name in os.listdir(tmp_path / "cache") if name.endswith(".lock") and name != ".lock"] == []


def test_one_at_a_time_has_a_lock_that_each_removes(tmp_path):
    store, inside, seen = table_store.TableStore(tmp_path / "cache"), [], []

    def one():
        for _ in range(5):
            with store.alone("key"):
                inside.append(1)
                time.sleep(0.001)
                seen.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 20 and os.listdir(tmp_path / "cache") == []


CONVERTS = """
import sys, time, torch, flatout
from flatout.pipeline.read.tables.table_scan import TableScan
batches = TableScan.batches
def slowly(scan):
    for number, batch in enumerate(batches(scan)):
        print("begun", flush=True)
        time.sleep(float(sys.argv[3]))
        yield batch
TableScan.batches = slowly
got = flatout.table(sys.argv[1], folder=sys.argv[2], max_bytes=0)
print(sum(row["row"].item() for row in got), flush=True)
"""


def converting(path, folder, wait_s):
    words = [sys.executable, "-c", CONVERTS, str(path), str(folder), str(wait_s)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_converts_leaves_nothing_wrong(path, tmp_path):
    folder = tmp_path / "cache"
    with converting(path, folder, 60) as killed:
        assert killed.stdout.readline() == "begun\n"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert entries(folder) == []
    assert rows(flatout.table(path, folder=folder, max_bytes=0)) == [*range(ROWS)]


@pytest.mark.slow
def test_of_two_processes_one_converts_and_the_other_waits(path, tmp_path):
    folder = tmp_path / "cache"
    with converting(path, folder, 1.0) as first:
        assert first.stdout.readline() == "begun\n"
        with converting(path, folder, 0) as second:
            told = [one.stdout.read().split() for one in (first, second)]
    assert told[0][-1] == told[1][-1] == str(sum(range(ROWS)))
    assert "begun" not in told[1]
    assert len(entries(folder)) == 1


def test_threads_may_open_tables_at_once(path, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(rows(flatout.table(path, folder=tmp_path / "cache"))))
        for _ in range(3)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [[*range(ROWS)]] * 3


def test_what_a_file_of_the_cache_says_is_not_believed(path, tmp_path):
    got = flatout.table(path, ["row", "text"])
    known, store = got._known.held, table_store.TableStore(tmp_path / "cache")
    store.make()
    for arrays in (
        {**known.arrays, "1 ends": known.arrays["1 ends"] + 1},
        {**known.arrays, "records": known.arrays["records"][:, :4].contiguous()},
        {**known.arrays, "records": known.arrays["records"][:-1]},
        {"records": known.arrays["records"]},
    ):
        assert store.keep("key", replace(known, arrays=arrays)) == ""
        assert store.find("key") is None
    assert store.keep("key", known) == ""
    assert store.find("key").num_rows == ROWS
    assert torch.equal(store.find("key").arrays["records"], known.arrays["records"])
