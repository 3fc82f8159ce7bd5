"""Whether what lies at a path is a process's own copy, as its guard's world has told."""

import errno
import json
import os

from flatout.probe.files.private_places import PrivatePlaces


def test_the_deepest_place_decides():
    places = PrivatePlaces(["/home/u", "/home/u/.cache/project"], ["/home/u/.cache"])
    assert "/home/u/a" in places
    assert "/home/u/.cache/a" not in places
    assert "/home/u/.cache/project/a" in places
    assert "/home/user/a" not in places


def test_only_the_processes_of_the_world_that_was_told_have_it(workdir):
    told = {"namespace": os.readlink("/proc/self/ns/mnt"), "private": [["/a", 0, 1]], "shared": [], "renames": True}
    (workdir / "world.json").write_text(json.dumps(told))
    assert "/a/b" in PrivatePlaces.of(str(workdir))
    (workdir / "world.json").write_text(json.dumps({**told, "namespace": "mnt:[1]"}))
    assert not PrivatePlaces.of(str(workdir))
    (workdir / "world.json").write_text('{"error": "no"}')
    assert not PrivatePlaces.of(str(workdir))
    assert not PrivatePlaces.of(str(workdir / "nowhere"))


def test_a_folder_that_an_overlay_would_not_rename_is_copied_first(workdir, monkeypatch):
    (workdir / "sub").mkdir()
    (workdir / "sub" / "a.txt").write_text("mine")
    inode = (workdir / "sub").stat().st_ino
    rename, refused = os.rename, []

    def as_an_overlay(source, target):
        if os.stat(source).st_ino == inode and not refused:
            refused.append(source)
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(os, "rename", as_an_overlay)
    PrivatePlaces([str(workdir)], renames=False).make_movable(str(workdir / "sub"))
    assert refused
    assert (workdir / "sub" / "a.txt").read_text() == "mine"
    assert os.listdir(workdir) == ["sub"]


def test_folders_elsewhere_and_files_are_left_alone(workdir, monkeypatch):
    (workdir / "a.txt").write_text("mine")
    (workdir / "sub").mkdir()
    monkeypatch.setattr(os, "rename", None)
    PrivatePlaces(["/nowhere"], renames=False).make_movable(str(workdir / "sub"))
    PrivatePlaces([str(workdir)], renames=False).make_movable(str(workdir / "a.txt"))
    PrivatePlaces([str(workdir)], renames=True).make_movable(str(workdir / "sub"))
