"""What the kernel says of files in some folders."""

import os

import pytest

from flatout.watch.files.file_events import FileEvents


@pytest.fixture
def folder(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("1")
    return tmp_path


@pytest.mark.parametrize(
    ("act", "names"),
    [
        (lambda folder: (folder / "a.txt").write_text("2"), {"a.txt"}),
        (lambda folder: (folder / "a.txt").unlink(), {"a.txt"}),
        (lambda folder: (folder / "new.txt").touch(), {"new.txt"}),
        (lambda folder: (folder / "a.txt").rename(folder / "c.txt"), {"a.txt", "c.txt"}),
        (lambda folder: (folder / "a.txt").read_text(), set()),
        (lambda folder: os.listdir(folder), set()),
    ],
)
def test_files_that_are_written_moved_and_removed_are_told_and_those_that_are_read_are_not(folder, act, names):
    events = FileEvents([str(folder)])
    assert events.watched == {str(folder)}
    assert events.touched() == []
    act(folder)
    assert set(events.touched()) == {str(folder / name) for name in names}
    assert events.touched() == []


def test_of_a_folder_that_is_gone_nothing_can_be_told(folder):
    inner = folder / "inner"
    inner.mkdir()
    events = FileEvents([str(inner)])
    inner.rmdir()
    assert "" in events.touched()


def test_a_folder_that_is_not_there_is_not_watched(folder):
    events = FileEvents([str(folder / "none"), str(folder)])
    assert events.watched == {str(folder)}
    assert FileEvents([]).touched() == []


def test_the_listener_is_closed_with_its_object(folder):
    before = len(os.listdir("/proc/self/fd"))
    events = FileEvents([str(folder)])
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del events
    assert len(os.listdir("/proc/self/fd")) == before
