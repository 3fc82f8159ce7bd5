"""The edited files of one process: which are served, who is told."""

import hashlib

import pytest

from flatout.fixes.source.served_files import ServedFiles
from flatout.schema.order import EditedFile


@pytest.fixture
def make(tmp_path):
    def file(name, *edits, text="old"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return EditedFile(path=str(path.resolve()), digest=hashlib.sha256(b"old").hexdigest(), text="new", edits=edits)

    return file


def test_files_are_found_by_every_path_that_leads_to_them(make, tmp_path):
    files = ServedFiles([make("train.py", "e")])
    (tmp_path / "link.py").symlink_to("train.py")
    assert files.find(str(tmp_path / "link.py")).text == "new"
    assert files.find(str(tmp_path / "sub" / ".." / "train.py")) is not None
    assert files.find(str(tmp_path / "other.py")) is None


def test_names_of_modules_are_those_of_files_and_of_packages(make):
    files = ServedFiles([make("package/__init__.py", "e"), make("helper.py", "e")])
    assert {"package", "helper"} <= files.module_names


def test_followers_hear_of_what_is_served_before_and_after_they_came(make):
    first, second = make("train.py", "a", "b"), make("helper.py", "b")
    files, told = ServedFiles([first, second]), []
    files.serve(first)
    files.follow("b", told.append, told.append)
    files.serve(second)
    assert told == ["train.py", "helper.py"]


def test_an_edit_with_a_changed_file_is_left_out_whole_and_said_once(make, capsys):
    files = ServedFiles([make("train.py", "a", "b"), make("helper.py", "b", text="changed"), make("own.py", "c")])
    told = []
    files.follow("b", told.append, told.append)
    files.follow("missing", told.append, told.append)
    assert told == ["helper.py has changed since the edit was made", "its text was not handed over to this process"]
    assert capsys.readouterr().err.count("\n") == 2  # b, and a, whose file has b's text in it
    assert files.module_names & {"train", "helper", "own"} == {"own"}
