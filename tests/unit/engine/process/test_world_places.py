"""Which places are private and which are shared: the deepest one decides."""

import os
import socket

import pytest

from flatout.engine.process.mounts import Mount, mounts
from flatout.engine.process.world_places import WorldPlan, channels, foreign_file, is_below, plan_places

MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:40 / /data\040disk rw,noatime - xfs /dev/vdb rw
31 27 0:41 / /books ro - ext4 /dev/vdc rw
32 31 0:42 / /books/new rw - tmpfs none rw
33 31 0:43 / /books rw - nfs4 far:/books ro,vers=4.2
not a line
"""


def test_mounts_are_read_with_their_kinds_and_what_is_hidden_is_left_out():
    assert mounts(MOUNTINFO) == [
        Mount("/", "ext4"),
        Mount("/books", "nfs4", True),
        Mount("/data disk", "xfs"),
        Mount("/proc", "proc"),
    ]


def test_the_working_folder_home_and_temporary_places_are_private(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / ".cache").mkdir(parents=True)
    plan = plan_places(str(tmp_path), [], [Mount("/", "ext4"), Mount("/proc", "proc"), Mount("/dev", "devtmpfs")])
    for place in (tmp_path / "a.txt", tmp_path / "home" / "b", "/tmp/x", "/var/tmp/x"):
        assert plan.is_private(str(place)), place
    for place in (tmp_path / "home" / ".cache" / "b", "/dev/shm/x", "/proc/1", "/run/x"):
        assert not plan.is_private(str(place)), place


def test_folders_of_flatout_s_own_are_shared_within_private_ones(tmp_path):
    own = tmp_path / ".flatout" / "now"
    own.mkdir(parents=True)
    plan = plan_places(str(tmp_path), [str(own)], [Mount("/", "ext4")])
    assert not plan.is_private(str(own / "part"))
    assert plan.is_private(str(tmp_path / ".flatout" / "other"))


def test_a_project_within_a_cache_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / ".cache" / "project"
    project.mkdir(parents=True)
    plan = plan_places(str(project), [], [Mount("/", "ext4")])
    assert plan.is_private(str(project / "a"))
    assert not plan.is_private(str(tmp_path / ".cache" / "a"))


def test_what_is_mounted_read_only_within_a_private_place_is_shown_as_it_is(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    plan = plan_places(str(tmp_path), [], [Mount("/", "ext4"), Mount(str(disk), "squashfs", read_only=True)])
    assert (str(disk), False) in plan.in_order()


def test_shallow_places_come_first():
    plan = WorldPlan("/a", ("/a/b/c", "/a"), ("/a/b",))
    assert plan.in_order() == [("/a", True), ("/a/b", False), ("/a/b/c", True)]


def test_a_place_is_below_itself_and_not_below_a_namesake():
    assert is_below("/a/b", ["/a/b"])
    assert is_below("/a/b", ["/"])
    assert not is_below("/a/bc", ["/a/b"])


def test_sockets_and_pipes_are_found_three_levels_deep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    (tmp_path / "x" / "y" / "z").mkdir(parents=True)
    for name in ("one", "x/two", "x/y/three", "x/y/z/four"):
        os.mkfifo(name)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("here")
    found = {os.path.relpath(place, tmp_path) for place in channels(str(tmp_path))}
    assert found == {"one", "here", "x/two", "x/y/three"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_that_may_be_written_is_found(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine").touch()
    assert foreign_file(str(tmp_path)) == ""
    os.chown(tmp_path / "a" / "mine", 1234, -1)
    assert foreign_file(str(tmp_path)) == str(tmp_path / "a" / "mine")
