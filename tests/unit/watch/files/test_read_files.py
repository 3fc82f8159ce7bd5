"""Files that samples are read from: which changes are told at once, and which when a pass begins."""

import os

import pytest

from flatout.watch.files.read_files import ReadFiles


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "b.png", "notes.txt"):
        (tmp_path / name).write_text("1")
    return tmp_path


def write(file):
    file.write_text("22")


def test_without_files_there_is_nothing_to_look_at():
    files = ReadFiles(frozenset(), ["no name", "a/b\0c", "x" * 5000], ())
    assert not files.any
    assert (files.told(), files.changed()) == ("", "")


@pytest.mark.parametrize(
    ("name", "told"),
    [("a.png", True), ("b.png", True), ("notes.txt", False), ("new.png", False)],
)
def test_of_the_folder_of_a_file_that_was_opened_files_of_its_kind_count(folder, name, told):
    files = ReadFiles(frozenset({str(folder / "a.png")}), [], ())
    assert files.any
    assert files.told() == ""
    write(folder / name)
    assert files.told() == (f"the file {folder / name}" if told else "")


@pytest.mark.parametrize("name", ["a.png", "new.png", "notes.txt"])
def test_in_a_folder_that_was_listed_every_file_counts(folder, name):
    files = ReadFiles(frozenset({f"{folder}{os.sep}"}), [], ())
    write(folder / name)
    assert files.told() != ""


def test_a_file_that_was_looked_for_counts_when_it_comes(folder):
    files = ReadFiles(frozenset({str(folder / "later.png")}), [], ())
    write(folder / "later.png")
    assert files.told() == f"the file {folder / 'later.png'}"


def test_the_folders_of_names_that_are_held_are_looked_at(folder):
    files = ReadFiles(frozenset(), [str(folder / "b.png"), folder / "a.png", "b.png"], ())
    write(folder / "notes.txt")
    assert files.changed() == ""
    write(folder / "b.png")
    assert files.changed(whole=True) == f"the file {folder / 'b.png'}"


def test_a_mapped_file_is_compared_when_a_pass_begins(folder):
    files = ReadFiles(frozenset(), [], [str(folder / "a.png")])
    assert files.changed() == ""
    write(folder / "a.png")
    assert files.changed() == f"the file {folder / 'a.png'}"


def test_a_link_that_leads_elsewhere_is_a_change(folder):
    link, other = folder / "link.png", folder / "other"
    other.mkdir()
    (other / "a.png").write_text("other")
    link.symlink_to(folder / "a.png")
    files = ReadFiles(frozenset({str(link)}), [], ())
    link.unlink()
    link.symlink_to(other / "a.png")
    assert files.told() == f"the file {link}"


@pytest.mark.parametrize("listed", [True, False])
def test_where_the_kernel_tells_nothing_names_sizes_and_times_are_compared(folder, monkeypatch, listed):
    monkeypatch.setattr("flatout.watch.files.file_events.FileEvents.touched", lambda self: [])
    files = ReadFiles(frozenset({f"{folder}{os.sep}"}), [], (), listed=listed)
    files._near.clear()
    files._events.watched.clear()
    assert (files.changed(whole=True) == "") == listed  # without a list, there is nothing to compare with
    (folder / "b.png").unlink()
    assert files.changed(whole=True) != ""
