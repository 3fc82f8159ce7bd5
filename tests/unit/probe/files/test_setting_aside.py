"""Files and folders set aside, each whole or not at all."""

import errno
import os
import shutil

import pytest

from flatout.probe.files.setting_aside import take_by_link, take_by_move, take_copy, take_tree


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "model.pt"
    file.write_bytes(b"weights")
    os.utime(file, ns=(1, 2))
    file.chmod(0o640)
    return file


def same(source, target):
    assert target.read_bytes() == b"weights"
    assert target.stat().st_mtime_ns == 2
    assert target.stat().st_mode & 0o777 == 0o640


def test_a_copy_has_content_times_and_mode(source, tmp_path):
    take_copy(str(source), str(tmp_path / "aside"))
    same(source, tmp_path / "aside")
    assert source.exists()


def test_a_link_is_copied_as_a_link(source, tmp_path):
    (tmp_path / "last.pt").symlink_to("model.pt")
    take_copy(str(tmp_path / "last.pt"), str(tmp_path / "aside"))
    assert os.readlink(tmp_path / "aside") == "model.pt"


def test_a_copy_that_fails_leaves_no_file_of_that_name(source, tmp_path, monkeypatch):
    def fail(source, target, **named):
        with open(target, "wb") as file:
            file.write(b"wei")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", fail)
    with pytest.raises(OSError, match="No space"):
        take_copy(str(source), str(tmp_path / "aside"))
    assert not (tmp_path / "aside").exists()


def other_device(*args, **named):
    raise OSError(errno.EXDEV, "Invalid cross-device link")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_move_falls_back_on_a_copy(source, tmp_path, monkeypatch, elsewhere):
    number, plain = source.stat().st_ino, os.rename
    if elsewhere:
        monkeypatch.setattr(os, "rename", lambda one, two: plain(one, two) if "partial" in one else other_device())
    take_by_move(str(source), str(tmp_path / "aside"))
    same(source, tmp_path / "aside")
    assert source.exists() == elsewhere
    assert ((tmp_path / "aside").stat().st_ino == number) == (not elsewhere)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_second_name_falls_back_on_a_copy(source, tmp_path, monkeypatch, elsewhere):
    if elsewhere:
        monkeypatch.setattr(os, "link", other_device)
    take_by_link(str(source), str(tmp_path / "aside"))
    same(source, tmp_path / "aside")
    assert os.path.samefile(source, tmp_path / "aside") == (not elsewhere)


def test_a_folder_is_taken_with_its_links(tmp_path):
    (tmp_path / "run" / "deep").mkdir(parents=True)
    (tmp_path / "run" / "deep" / "a").write_bytes(b"a")
    (tmp_path / "run" / "link").symlink_to("deep/a")
    take_tree(str(tmp_path / "run"), str(tmp_path / "aside"))
    assert os.path.samefile(tmp_path / "run" / "deep" / "a", tmp_path / "aside" / "deep" / "a")
    assert os.readlink(tmp_path / "aside" / "link") == "deep/a"
    assert not (tmp_path / "aside.partial").exists()
