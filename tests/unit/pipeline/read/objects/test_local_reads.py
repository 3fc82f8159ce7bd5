"""Files of this machine as objects."""

import os

import pytest

from flatout.errors import BadObject
from flatout.pipeline.read.objects.local_reads import LocalReader
from flatout.pipeline.read.objects.object_reads import ObjectRequest


def test_a_file_or_a_part_of_it_comes(tmp_path):
    path = tmp_path / "a b%20c#.bin"
    path.write_bytes(bytes(range(200)))
    for url in (str(path), f"file://{path}"):
        assert LocalReader().read(ObjectRequest(url)).data == bytes(range(200))
        assert LocalReader().read(ObjectRequest(url, 5, 9)).data == bytes(range(5, 9))
    with pytest.raises(BadObject, match="gave 10 bytes"):
        LocalReader().read(ObjectRequest(str(path), 190, 300))


def test_what_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(BadObject, match="is missing"):
        LocalReader().read(ObjectRequest(str(tmp_path / "none")))
    with pytest.raises(BadObject, match="could not be read"):
        LocalReader().read(ObjectRequest(str(tmp_path)))


def test_a_file_that_is_written_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    path, stat = tmp_path / "a", os.fstat
    path.write_bytes(b"1" * 10)
    looked = []

    def written_behind(file):
        looked.append(file)
        if len(looked) == 2:
            os.utime(path, ns=(0, 0))
        return stat(file)

    monkeypatch.setattr(os, "fstat", written_behind)
    with pytest.raises(BadObject):
        LocalReader().read(ObjectRequest(str(path), 0, 5))


def test_a_file_that_was_written_again_is_told_apart(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"1")
    first = LocalReader().read(ObjectRequest(str(path))).identity
    other = tmp_path / "b"
    other.write_bytes(b"2")
    other.rename(path)
    assert LocalReader().read(ObjectRequest(str(path))).identity != first
