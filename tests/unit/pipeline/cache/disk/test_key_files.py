"""What is told of files that a data set names, and how much of them is looked at."""

import os

import pytest

from flatout.pipeline.cache.disk import key_files
from flatout.pipeline.cache.disk.key_files import Allowance, Files, KeyLimits, Untold, digest


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Let no file be waited for: what is written here is not written again within a tick."""
    monkeypatch.setattr(key_files, "_TICK_NS", 0)


@pytest.fixture
def folder(tmp_path):
    inner = tmp_path / "images" / "deep"
    inner.mkdir(parents=True)
    (inner / "a.png").write_bytes(b"a")
    (tmp_path / "images" / "b.png").write_bytes(b"b")
    return tmp_path


def told(name, **limits):
    return Files(Allowance(KeyLimits(**limits))).encode(str(name))


@pytest.mark.parametrize(
    ("one", "other"), [((b"ab", b"c"), (b"a", b"bc")), ((b"a",), (b"a", b"")), ((b"a", b"b"), (b"b", b"a"))]
)
def test_a_digest_is_of_pieces_in_their_order(one, other):
    assert digest("kind", *one) == digest("kind", *one)
    assert digest("kind", *one) != digest("kind", *other)
    assert digest("kind", *one) != digest("other", *one)
    assert len(digest("kind")) == 16


@pytest.mark.parametrize("text", ["", "/", "no\nfile", "x" * 5000, "just a word"])
def test_what_is_no_name_of_a_file_tells_nothing(text, workdir):
    assert told(text) == b""


def rewrite(folder):
    (folder / "images" / "b.png").write_bytes(b"bb")


def in_place(folder):
    os.utime(folder / "images" / "b.png", ns=(1, 1))


def add(folder):
    (folder / "images" / "deep" / "new.png").touch()


def rename(folder):
    (folder / "images" / "b.png").rename(folder / "images" / "c.png")


@pytest.mark.parametrize("change", [rewrite, in_place, add, rename])
def test_a_folder_is_told_by_all_files_below_it(folder, change):
    before = told(folder / "images")
    assert told(folder / "images") == before
    change(folder)
    assert told(folder / "images") != before


def test_a_file_is_told_by_itself(folder):
    before = told(folder / "images" / "b.png")
    add(folder)
    assert told(folder / "images" / "b.png") == before
    rewrite(folder)
    assert told(folder / "images" / "b.png") != before


def test_what_changes_without_the_data_changing_is_passed_by(folder):
    before = told(folder / "images")
    (folder / "images" / "__pycache__").mkdir()
    (folder / "images" / "__pycache__" / "x.pyc").touch()
    assert told(folder / "images") == before


def test_a_name_that_is_none_is_told_by_the_files_beside_it(folder):
    pattern = folder / "images" / "%05d.png"
    before = told(pattern)
    assert before != b""
    rewrite(folder)
    assert told(pattern) != before
    assert told(folder / "none" / "%05d.png") == b""


def test_links_are_followed_and_a_circle_ends(folder):
    (folder / "images" / "up").symlink_to(folder / "images")
    (folder / "images" / "nowhere").symlink_to(folder / "gone")
    assert told(folder / "images", files=10) != b""


@pytest.mark.parametrize("address", ["http://host/a.png", "s3://bucket/a", "HTTPS://host"])
def test_a_remote_address_cannot_be_told(address):
    with pytest.raises(Untold, match="names the remote address"):
        told(address)
    assert told("file://nothing/here") == b""


def test_a_device_cannot_be_told():
    with pytest.raises(Untold, match="neither a file nor a folder"):
        told("/dev/null")


def test_a_folder_that_cannot_be_read_cannot_be_told(folder, monkeypatch):
    def fail(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(key_files.os, "scandir", fail)
    with pytest.raises(Untold, match=r"cannot be read \(Permission denied\)"):
        told(folder / "images")


def test_there_is_an_end_to_files_bytes_and_time(folder, monkeypatch):
    with pytest.raises(Untold, match="more than 2 files, the last in"):
        told(folder / "images", files=2)
    allowance = Allowance(KeyLimits(num_bytes=10))
    allowance.content(10)
    with pytest.raises(Untold, match="more than 10 bytes of arrays"):
        allowance.content(1)
    allowance = Allowance(KeyLimits(seconds=0.0))
    with pytest.raises(Untold, match="more than can be read in 0 s"):
        for _ in range(256):
            allowance.step()


def test_each_folder_is_looked_at_once(folder):
    files = Files(Allowance(KeyLimits(files=7)))  # what is there, and what is asked for
    first = files.encode(str(folder / "images"))
    assert files.encode(str(folder / "images")) == first
    beside = files.encode(str(folder / "images" / "none.png"))
    assert files.encode(str(folder / "images" / "other.png")) == beside


def test_what_cannot_be_told_says_through_which_names_it_is_reached():
    untold = Untold("a device")
    assert str(untold) == "a device"
    untold.names += ["path", "Rows"]
    assert str(untold) == "Rows.path: a device"


def test_a_file_that_was_just_written_is_looked_at_once_its_times_are_settled(folder, monkeypatch):
    slept = []
    monkeypatch.setattr(key_files, "_TICK_NS", 10**12)
    monkeypatch.setattr(key_files.time, "sleep", slept.append)
    told(folder / "images" / "b.png")
    assert slept == [1000.0]
