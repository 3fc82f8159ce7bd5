"""Whether a new file can take the place of another without anybody noticing."""

import os

import pytest

from flatout.fixes.checkpoint import file_replacement
from flatout.fixes.checkpoint.file_replacement import made_alike, replaceable


@pytest.fixture
def target(tmp_path):
    file = tmp_path / "model.pt"
    file.write_bytes(b"old")
    return file


def test_a_place_that_is_free_and_a_file_of_ours_can_be_given_another(target):
    assert replaceable(str(target))
    assert replaceable(str(target.with_name("new.pt")))


def test_a_folder_that_is_not_there_takes_none(tmp_path):
    assert not replaceable(str(tmp_path / "none" / "model.pt"))


def link(target):
    os.link(target, target.with_suffix(".link"))


def mode(bits):
    return lambda target: target.chmod(bits)


def folder(target):
    target.unlink()
    target.mkdir()


def symbolic(target):
    target.rename(target.with_suffix(".old"))
    target.symlink_to(target.with_suffix(".old"))


@pytest.mark.parametrize("change", [link, mode(0o2644), mode(0o4755), folder, symbolic])
def test_what_somebody_would_notice_is_left(target, change):
    change(target)
    assert not replaceable(str(target))


def test_a_file_that_is_open_here_is_left(target):
    with target.open("rb"):
        assert not replaceable(str(target))
    assert replaceable(str(target))


def test_a_file_of_another_user_is_left(target, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert not replaceable(str(target))


def test_where_open_files_are_not_told_nothing_is_replaced_blindly(target, monkeypatch):
    monkeypatch.setattr(file_replacement, "_OPEN_FILES", "/none")
    assert replaceable(str(target))  # as if none were open: there is no way to ask


def test_the_new_file_has_the_mode_of_the_old_one(target, tmp_path):
    made = tmp_path / "made"
    made.write_bytes(b"new")
    made.chmod(0o600)
    target.chmod(0o664)
    assert made_alike(str(made), str(target))
    assert made.stat().st_mode & 0o7777 == 0o664


def test_what_a_file_system_keeps_besides_shows(target, tmp_path, monkeypatch):
    made = tmp_path / "made"
    made.write_bytes(b"new")
    notes = {str(target): {"user.note": b"mine"}, str(made): {}}
    monkeypatch.setattr(os, "listxattr", lambda path: list(notes[path]))
    monkeypatch.setattr(os, "getxattr", lambda path, name: notes[path][name])
    assert not made_alike(str(made), str(target))
    notes[str(made)] = notes[str(target)]
    assert made_alike(str(made), str(target))
