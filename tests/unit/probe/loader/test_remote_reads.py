"""What files of fsspec ask of the network, counted by the caches that fsspec itself has."""

import sys

import fsspec
import pytest
import torch
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from flatout.probe.core.seams import Seams
from flatout.probe.loader.fetching import FetchWatch, dataset_key
from flatout.probe.loader.remote_reads import RemoteWatch
from flatout.probe.system.line_sampler import Doing
from flatout.schema.facts import RemoteReads

SIZE, READ = 2**20, 1000


class Piece(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        return bytes(end - start)


class Store(AbstractFileSystem):
    def info(self, path, **_):
        return {"name": path, "size": SIZE, "type": "file"}

    def _open(self, path, mode="rb", block_size=None, cache_options=None, **kwargs):
        return Piece(self, path, mode, block_size or "default", cache_options=cache_options, **kwargs)


class Samples(torch.utils.data.Dataset):
    def __init__(self, file):
        self.file = file

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.file.seek(index * 2**17)
        return len(self.file.read(READ))


@pytest.fixture
def seams():
    replaced = Seams()
    yield replaced
    replaced.undo()


def fetched(dataset, seams):
    watch = FetchWatch(Doing())
    watch.install(seams)
    assert [batch.tolist() for batch in torch.utils.data.DataLoader(dataset, batch_size=2)] == 4 * [[READ, READ]]
    return watch.stats[dataset_key(dataset)]


def test_what_a_batch_asks_for_and_reads_is_counted(seams):
    stats = fetched(Samples(Store().open("x", block_size=50_000)), seams)
    assert (stats.remote_requests, stats.remote_used) == (8, 8 * READ)
    assert stats.remote_fetched == 8 * (READ + 50_000)  # what is asked for, and a block behind it
    assert 0 < stats.remote_ns < stats.total_ns
    mean = RemoteReads.of({name: getattr(stats, name) for name in type(stats).__slots__})
    assert (mean.requests, mean.used_bytes, mean.fetched_bytes) == (2, 2 * READ, 2 * (READ + 50_000))


def test_what_is_in_a_cache_is_no_request(seams):
    stats = fetched(Samples(Store().open("x", block_size=2 * SIZE)), seams)
    assert (stats.remote_requests, stats.remote_used, stats.remote_fetched) == (1, 8 * READ, SIZE)


def test_a_cache_that_does_not_count_says_nothing(seams):
    assert fetched(Samples(Store().open("x", cache_type="none")), seams).remote_requests == 0


def test_files_of_this_machine_are_not_counted(seams, tmp_path):
    (tmp_path / "x").write_bytes(bytes(SIZE))
    with fsspec.open(tmp_path / "x", "rb") as file:
        assert fetched(Samples(file), seams).remote_used == 0


def test_nothing_is_wrapped_before_the_script_has_imported_fsspec(seams, monkeypatch):
    reads, plain = RemoteWatch(), AbstractBufferedFile.read
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "fsspec.spec")
        reads.install(seams)
        assert AbstractBufferedFile.read is plain
    reads.install(seams)
    assert AbstractBufferedFile.read is not plain
    assert AbstractBufferedFile.read.__qualname__ == plain.__qualname__  # by which it is pickled
    seams.undo()
    assert AbstractBufferedFile.read is plain
