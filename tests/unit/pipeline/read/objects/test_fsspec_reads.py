"""Objects of stores that only fsspec knows."""

import os
import zipfile

import fsspec
import pytest

from flatout.errors import BadObject
from flatout.pipeline.read.objects import fsspec_reads
from flatout.pipeline.read.objects.fsspec_reads import FsspecReader, file_system
from flatout.pipeline.read.objects.object_reads import ObjectRequest


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.setattr(fsspec_reads, "_FIRST_WAIT_S", 0.0)
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe("/a/b.bin", bytes(range(100)))
    yield system
    system.store.clear()


def test_an_object_or_a_part_of_it_comes(memory):
    reader = FsspecReader({})
    assert reader.read(ObjectRequest("memory://a/b.bin")).data == bytes(range(100))
    assert reader.read(ObjectRequest("memory://a/b.bin", 3, 7)).data == bytes(range(3, 7))
    with pytest.raises(BadObject, match="gave 10 bytes for bytes 90 to 200"):
        reader.read(ObjectRequest("memory://a/b.bin", 90, 200))
    with pytest.raises(BadObject, match="memory://a/c is missing"):
        reader.read(ObjectRequest("memory://a/c"))


def test_what_its_store_says_tells_versions_apart(memory, tmp_path):
    reader, path = FsspecReader({}), tmp_path / "x"
    path.write_bytes(b"1")
    assert reader.read(ObjectRequest(f"file://{path}")).identity == ""  # it may be written again within a second
    os.utime(path, (1e9, 1e9))
    first = reader.read(ObjectRequest(f"file://{path}"))
    assert first.identity and reader.read(ObjectRequest(f"file://{path}", known=first.identity)).data is None
    path.write_bytes(b"22")
    os.utime(path, (2e9, 2e9))
    assert reader.read(ObjectRequest(f"file://{path}", known=first.identity)).data == b"22"


@pytest.mark.parametrize(("failures", "comes"), [(1, True), (4, True), (5, False)])
def test_what_fails_for_a_moment_is_asked_for_again(memory, monkeypatch, failures, comes):
    left, cat = [OSError("reset")] * failures, type(memory).cat_file

    def failing(self, path, **more):
        if left:
            raise left.pop()
        return cat(self, path, **more)

    monkeypatch.setattr(type(memory), "cat_file", failing)
    if comes:
        assert FsspecReader({}).read(ObjectRequest("memory://a/b.bin")).data == bytes(range(100))
    else:
        with pytest.raises(BadObject, match="reset"):
            FsspecReader({}).read(ObjectRequest("memory://a/b.bin"))


def test_an_object_that_is_written_while_it_is_read_is_read_again(memory, monkeypatch):
    versions, cat = [{"size": 100, "etag": name} for name in ("a", "b", "b", "b")], type(memory).cat_file
    monkeypatch.setattr(type(memory), "info", lambda self, path, **more: versions.pop(0))
    got = FsspecReader({}).read(ObjectRequest("memory://a/b.bin"))
    assert got.identity == "etag=b" and not versions and cat is not None


def test_a_url_that_nobody_knows_is_said():
    with pytest.raises(BadObject, match="cannot be opened"):
        file_system("nothing://a", {})


def test_a_package_that_is_missing_is_named(monkeypatch):
    def missing(url, **options):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(BadObject, match="Install s3fs"):
        file_system("s3://bucket/a", {})


def test_members_of_an_archive_are_not_told_apart(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("b.bin", b"123")
    got = FsspecReader({}).read(ObjectRequest(f"zip://b.bin::{tmp_path}/a.zip"))
    assert (got.data, got.identity) == (b"123", "")


def test_exact_names_of_versions_are_preferred():
    facts = {"size": 3, "mtime": 1.0, "etag": '"x"'}
    assert fsspec_reads._identity(facts, "a://b") == 'etag="x"'
    assert fsspec_reads._identity(facts | {"etag": 'W/"x"'}, "a://b") == "mtime=1.0 size=3"
    assert fsspec_reads._identity({"size": 3}, "a://b") == fsspec_reads._identity({"mtime": "today"}, "a://b") == ""
