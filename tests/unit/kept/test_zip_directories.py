"""Directories of zip archives, kept: whatever a script does with an archive, it gets what it would get without.

Modules: flatout.kept.zip_directories, flatout.kept.archive_directories, flatout.kept.known_files
"""

import copy
import io
import os
import random
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from flatout.kept import known_files, zip_directories
from flatout.kept.archive_directories import ArchiveDirectories
from flatout.kept.known_files import KnownFiles
from flatout.kept.zip_directories import ZipDirectories

NAMES = ("_RealGetContents", "getinfo", "namelist")
PLAIN = {name: getattr(zipfile.ZipFile, name) for name in NAMES}


class Fix:
    """Switches what stands for the functions of `zipfile` on and off."""

    def __init__(self, monkeypatch):
        self.acted, self.left, self._patch = 0, [], monkeypatch
        self.zips = ZipDirectories(KnownFiles(self.left.append), self._act)
        self._made = {
            "_RealGetContents": self.zips.reading(PLAIN["_RealGetContents"]),
            "getinfo": self.zips.finding(PLAIN["getinfo"]),
            "namelist": self.zips.naming(PLAIN["namelist"]),
        }
        monkeypatch.setattr(
            zipfile.ZipFile, "__getattr__", lambda one, name: self.zips.absent(one, name), raising=False
        )

    def _act(self):
        self.acted += 1

    def switch(self, on):
        for name in NAMES:
            self._patch.setattr(zipfile.ZipFile, name, self._made[name] if on else PLAIN[name])


@pytest.fixture
def fix(monkeypatch):
    monkeypatch.setattr(known_files, "_RESTED_NS", -1)
    monkeypatch.setattr(known_files, "_kind_of", lambda device: "ext4")
    made = Fix(monkeypatch)
    made.switch(True)
    return made


def written(path, members, comment=b""):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = comment
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 2, 3, 4, 6)), content)
    return path


@pytest.fixture
def path(tmp_path):
    return str(written(tmp_path / "a.zip", [(f"{at}.bin", bytes([at]) * (at + 1)) for at in range(9)], b"nine"))


def warm(path, times=2):
    for _ in range(times):
        zipfile.ZipFile(path).close()


def told(info):
    return {name: getattr(info, name, "none") for name in zip_directories._SLOTS}


def test_the_directory_is_read_twice_and_then_no_more(fix, path):
    warm(path)
    assert fix.acted == 0
    with zipfile.ZipFile(path) as archive:
        assert archive.read("3.bin") == bytes([3]) * 4
    assert fix.acted == 1


def test_an_archive_for_each_sample_is_not_kept(fix, tmp_path):
    for number in range(4):
        zipfile.ZipFile(written(tmp_path / f"{number}.zip", [("a", b"1")])).close()
    assert fix.acted == 0
    assert not fix.zips._kept._kept


def test_all_that_can_be_asked_is_the_same(fix, path):
    warm(path)
    kept = zipfile.ZipFile(path)
    fix.switch(False)
    plain = zipfile.ZipFile(path)
    fix.switch(True)
    assert fix.acted == 1
    assert kept.fp.tell() == plain.fp.tell()
    assert kept.namelist() == plain.namelist()
    assert told(kept.getinfo("2.bin")) == told(plain.getinfo("2.bin"))
    assert [told(info) for info in kept.infolist()] == [told(info) for info in plain.infolist()]
    assert type(kept.filelist) is list and type(kept.NameToInfo) is dict
    assert list(kept.NameToInfo) == list(plain.NameToInfo)
    assert vars(kept).keys() == vars(plain).keys()
    for name in ("comment", "start_dir", "mode", "pwd", "filename", "debug", "_didModify", "_filePassed"):
        assert getattr(kept, name) == getattr(plain, name)
    assert repr(kept) == repr(plain)
    assert (kept.testzip(), plain.testzip()) == (None, None)


def test_a_member_is_one_object_however_it_is_reached(fix, path):
    warm(path)
    archive = zipfile.ZipFile(path)
    first = archive.getinfo("4.bin")
    assert archive.getinfo("4.bin") is first
    assert archive.infolist()[4] is first
    assert archive.NameToInfo["4.bin"] is first is archive.getinfo("4.bin")
    assert archive.infolist() is archive.filelist


def test_a_member_that_the_script_changes_is_changed_for_that_archive_alone(fix, path):
    warm(path)
    archive = zipfile.ZipFile(path)
    archive.getinfo("4.bin").filename = "renamed"
    assert archive.namelist()[4] == "renamed"
    assert archive.getinfo("4.bin").filename == "renamed"
    archive.infolist().clear()
    assert archive.namelist() == []
    other = zipfile.ZipFile(path)
    assert other.namelist() == [f"{at}.bin" for at in range(9)]
    assert fix.acted == 2


def test_what_is_not_there_raises_what_it_would(fix, path):
    warm(path)
    archive = zipfile.ZipFile(path)
    with pytest.raises(KeyError, match="There is no item named 'none' in the archive"):
        archive.read("none")
    with pytest.raises(AttributeError, match="'ZipFile' object has no attribute 'nothing'"):
        archive.nothing  # noqa: B018
    with pytest.raises(TypeError):
        archive.getinfo([])
    archive.close()
    with pytest.raises(ValueError, match="closed"):
        archive.read("1.bin")
    assert archive.namelist()[0] == "0.bin"


def test_of_two_members_with_one_name_the_last_counts(fix, tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        path = written(tmp_path / "a.zip", [("a", b"1"), ("b", b"2"), ("a", b"3")])
    warm(path)
    archive = zipfile.ZipFile(path)
    assert archive.read("a") == b"3"
    assert archive.namelist() == ["a", "b", "a"]
    assert archive.getinfo("a") is archive.infolist()[2] is not archive.infolist()[0]


def test_a_file_that_was_written_or_replaced_is_read_again(fix, path, tmp_path):
    warm(path, 3)
    assert fix.acted == 1
    os.replace(written(tmp_path / "b.zip", [("new", b"1")]), path)
    assert zipfile.ZipFile(path).namelist() == ["new"]
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("more", b"2")
    assert zipfile.ZipFile(path).namelist() == ["new", "more"]
    assert fix.acted == 1


def test_a_file_written_just_now_is_not_kept(fix, path, monkeypatch):
    monkeypatch.setattr(known_files, "_RESTED_NS", 3_000_000_000)
    warm(path, 4)
    assert fix.acted == 0


def test_files_of_other_machines_and_mapped_ones_are_left_alone(fix, path, monkeypatch, tmp_path):
    monkeypatch.setattr(known_files, "_kind_of", lambda device: "nfs4")
    warm(path, 4)
    assert fix.acted == 0
    assert fix.left == ["a.zip lies on a file system that may tell late (nfs4)"]
    monkeypatch.setattr(known_files, "_kind_of", lambda device: "ext4")
    fix.zips._kept._files._telling.clear()
    warm(path, 3)
    assert fix.acted == 2
    mapped = np.memmap(path, np.uint8, "r+")
    warm(path, 3)
    assert fix.acted == 2
    del mapped


class Own(zipfile.ZipFile):
    pass


def test_other_ways_to_open_are_left_alone(fix, path):
    warm(path, 3)
    for _ in range(3):
        Own(path).close()
        zipfile.ZipFile(io.BytesIO(Path(path).read_bytes())).close()
        zipfile.ZipFile(path, "a").close()
        with open(path, "rb", buffering=0) as raw:
            zipfile.ZipFile(raw).close()
    assert fix.acted == 1


def test_an_opened_file_that_is_handed_in_is_read_where_it_is(fix, path):
    warm(path)
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        assert archive.read("1.bin") == bytes([1]) * 2
        fix.switch(False)
        position = file.tell()
        assert zipfile.ZipFile(file).fp is file
        fix.switch(True)
        assert position > 0
    assert fix.acted == 1


def test_npz_archives_are_zip_archives(fix, tmp_path):
    arrays = {f"a{at}": np.arange(at + 1) for at in range(5)}
    np.savez(tmp_path / "a.npz", **arrays)
    for _ in range(4):
        with np.load(tmp_path / "a.npz") as loaded:
            assert loaded.files == list(arrays)
            assert all(np.array_equal(loaded[name], array) for name, array in arrays.items())
    assert fix.acted == 2


def test_a_path_inside_and_a_copy_find_the_same_members(fix, path):
    warm(path)
    assert sorted(each.name for each in zipfile.Path(path).iterdir()) == [f"{at}.bin" for at in range(9)]
    archive = zipfile.ZipFile(path)
    info = archive.getinfo("1.bin")
    twin = copy.copy(archive)
    assert archive.infolist()[1] is info
    assert twin.infolist()[1] is info
    assert twin.filelist is archive.filelist


def test_switched_off_an_archive_that_was_opened_before_still_has_everything(fix, path):
    warm(path)
    archive = zipfile.ZipFile(path)
    assert fix.acted == 1
    fix.switch(False)
    assert archive.read("8.bin") == bytes([8]) * 9
    assert archive.namelist()[0] == "0.bin"


def test_threads_get_one_object_a_member(fix, path):
    warm(path)
    archive, found = zipfile.ZipFile(path), []

    def look():
        found.extend(archive.getinfo(f"{at}.bin") for at in range(9))
        found.extend(archive.infolist())

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(info) for info in found}) == 9


OPERATIONS = (
    lambda archive, rng: archive.read(rng.choice(archive.namelist())),
    lambda archive, rng: told(archive.getinfo(f"{rng.randrange(9)}.bin")),
    lambda archive, rng: archive.namelist(),
    lambda archive, rng: len(archive.infolist()),
    lambda archive, rng: setattr(archive.getinfo(f"{rng.randrange(9)}.bin"), "comment", b"mine"),
    lambda archive, rng: archive.infolist().pop().filename,
    lambda archive, rng: [told(info) for info in archive.filelist],
    lambda archive, rng: archive.open(f"{rng.randrange(9)}.bin").read(3),
    lambda archive, rng: setattr(archive, "pwd", b"x"),
    lambda archive, rng: sorted(name for name in archive.NameToInfo),
    lambda archive, rng: archive.getinfo("none"),
    lambda archive, rng: archive.nothing,
)


def transcript(path, seed):
    rng, said = random.Random(seed), []
    with zipfile.ZipFile(path) as archive:
        for _ in range(rng.randrange(1, 12)):
            try:
                said.append(rng.choice(OPERATIONS)(archive, rng))
            except Exception as error:
                said.append((type(error), str(error)))
        said.append(archive.fp.tell())
    return said


def test_any_order_of_questions_gets_the_same_answers(fix, path):
    warm(path)
    for seed in range(300):
        kept = transcript(path, seed)
        fix.switch(False)
        assert kept == transcript(path, seed)
        fix.switch(True)
    assert fix.acted == 300


def test_memory_is_bounded():
    kept = ArchiveDirectories(SimpleNamespace(is_mapped=lambda identity: False, may_keep=lambda *of: True))

    def listed(entries):
        return SimpleNamespace(infos=range(entries))

    def met(key, entries):
        for _ in range(2):  # nothing is kept of the first time
            kept.met((key,), 0, "", lambda: listed(entries))

    for number in range(6):
        met(number, 150_000)
    assert [kept.known((number,)) for number in range(6)] == [None] * 4 + [listed(150_000)] * 2
    met("large", 400_001)
    assert kept.known(("large",)) is None
    assert not any(kept._is_met_again((number,)) for number in range(10, 10_011))
    assert kept._is_met_again((10_010,))
    assert not kept._is_met_again((10,))
