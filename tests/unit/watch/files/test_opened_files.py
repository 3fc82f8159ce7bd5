"""The files that a process opens, each as it was then."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from flatout.watch.files.opened_files import OpenedFiles, are_as_before, files_held, mark_of
from flatout.watch.forked_copy import ask_a_copy


def heard(act):
    """Return what is heard of `act` in a copy of the process: an ear stays as long as its process."""

    def listen():
        ear = OpenedFiles()
        act()
        return ear.written, ear.taken(), ear.taken()

    answer = ask_a_copy(listen)
    assert answer.failed == ""
    return answer.value


def test_files_that_are_read_are_taken_once_each_as_it_was(tmp_path):
    file = tmp_path / "rows.bin"
    file.write_bytes(b"1234")
    written, first, again = heard(lambda: [file.read_bytes(), file.read_bytes()])
    assert (written, first, again) == ("", {str(file): mark_of(str(file))}, {})
    assert first[str(file)][0] == 4


def test_a_file_that_is_not_there_and_a_folder_that_is_listed_are_taken_too(tmp_path):
    def ask():
        os.listdir(tmp_path)
        with pytest.raises(FileNotFoundError):
            (tmp_path / "none").read_bytes()

    assert heard(ask)[1] == {str(tmp_path): mark_of(str(tmp_path)), str(tmp_path / "none"): None}


def test_what_belongs_to_python_or_the_system_is_passed_over():
    def read():
        for name in (os.__file__, "/dev/null"):
            Path(name).read_bytes()

    assert heard(read)[:2] == ("", {})


@pytest.mark.parametrize(
    "act",
    [
        lambda name: open(name, "a").close(),
        os.remove,
        lambda name: os.rename(name, f"{name}.old"),
        lambda name: os.truncate(name, 0),
    ],
)
def test_what_would_be_written_or_removed_is_named(tmp_path, act):
    file = tmp_path / "rows.bin"
    file.write_bytes(b"1234")

    def tried():
        with contextlib.suppress(OSError):  # the file systems of a copy are read-only where the kernel allows that
            act(str(file))

    assert heard(tried)[0] == str(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_bytes(b"12345"),
        lambda file: file.unlink(),
        lambda file: shutil.copy(file, file.with_suffix(".new")) and os.replace(file.with_suffix(".new"), file),
        lambda file: os.utime(file, ns=(0, 0)),
    ],
)
def test_a_mark_differs_after_every_change(tmp_path, change):
    file = tmp_path / "rows.bin"
    file.write_bytes(b"1234")
    marks = {str(file): mark_of(str(file)), str(tmp_path / "none"): None}
    assert are_as_before(marks)
    change(file)
    assert not are_as_before(marks)


def test_a_file_that_appears_is_a_change(tmp_path):
    marks = {str(tmp_path / "none"): None}
    (tmp_path / "none").touch()
    assert not are_as_before(marks)


def test_open_files_that_may_be_read_are_held(tmp_path):
    rows, log = tmp_path / "rows.bin", tmp_path / "log.txt"
    rows.write_bytes(b"1234")
    with rows.open("rb"), log.open("w"):
        held = files_held()
    assert held[str(rows)] == mark_of(str(rows))
    assert str(log) not in held
    assert str(rows) not in files_held()
