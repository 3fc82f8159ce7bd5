"""Files of ours: read only where they are files of a sane size, written for their owner, links replaced."""

import os

import pytest

from flatout.schema.files import keep_private, read_whole, write_whole


def test_a_new_file_is_its_owner_s_alone_and_an_old_one_keeps_its_mode(tmp_path):
    path = tmp_path / "file"
    write_whole(path, b"1")
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o664)
    write_whole(path, b"2")
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o664, b"2")
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "theirs").write_bytes(b"theirs")
    for name in ("file", "file.partial"):
        (tmp_path / name).symlink_to("theirs")
    write_whole(tmp_path / "file", b"ours")
    assert (tmp_path / "theirs").read_bytes() == b"theirs"
    assert not (tmp_path / "file").is_symlink() and (tmp_path / "file").read_bytes() == b"ours"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_refused_at_once(make, tmp_path):
    make(tmp_path / "odd")
    with pytest.raises(OSError, match="it is a"):
        read_whole(tmp_path / "odd")


def test_a_file_that_is_too_large_or_grows_is_refused(tmp_path):
    (tmp_path / "large").write_bytes(bytes(101))
    with pytest.raises(OSError, match="the limit is"):
        read_whole(tmp_path / "large", 100)
    with pytest.raises(OSError, match="it grows"):
        read_whole(type(tmp_path)("/proc/self/maps"), 10)  # its size is said to be 0
    assert len(read_whole(tmp_path / "large", 101)) == 101


def test_a_folder_is_kept_private_and_what_is_the_script_s_is_left_alone(tmp_path):
    mine, kept = tmp_path / "log", tmp_path / "files" / "kept"
    kept.parent.mkdir()
    for path in (mine, kept, tmp_path / "two"):
        path.write_text("")
        path.chmod(0o644)
    os.link(tmp_path / "two", tmp_path / "names")
    keep_private(tmp_path)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path, mine, kept, tmp_path / "two")]
    assert modes == [0o700, 0o600, 0o644, 0o644]
