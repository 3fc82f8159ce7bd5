"""What is read from files again and again, kept: the same values, and none of a file that has changed."""

import builtins
import gc
import io
import os
import pickle
import shutil
import warnings
import weakref
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from flatout.errors import ChangedTooLate
from flatout.kept import kept_reads, known_files
from flatout.kept.kept_reads import KeptReads
from flatout.kept.reports import Reports


class Never:
    """The pace of proofs that are never due."""

    due = False


class Reads:
    """`numpy.load` or another function as it stands under the fix."""

    def __init__(self, function=np.load, pace=None, fits=lambda num_bytes, owner: True, **about):
        self.read = self.acted = 0
        self.left = []
        reports = Reports(left=self.left.append, pace=pace or Never(), **about)
        self.kept = KeptReads(reports, self._act, fits)
        self._function = function
        self._call = self.kept.reading("numpy.load", self._original)

    def _act(self):
        self.acted += 1

    def _original(self, *args, **kwargs):
        self.read += 1
        return self._function(*args, **kwargs)

    def __call__(self, *args, **kwargs):
        got, plain = self._call(*args, **kwargs), self._function(*args, **kwargs)
        assert type(got) is type(plain)
        assert got.dtype == plain.dtype and got.strides == plain.strides and got.tobytes() == plain.tobytes()
        return got


@pytest.fixture(autouse=True)
def rested(monkeypatch, workdir):
    """Files count as not written for a while."""
    monkeypatch.setattr(known_files, "_RESTED_NS", -1)
    monkeypatch.setattr(known_files, "_kind_of", lambda device: "ext4")


def saved(name="a.npy", size=50, seed=0):
    np.save(name, np.random.default_rng(seed).standard_normal((size, 3)))
    return name


def test_a_file_that_stays_as_it_is_is_read_once():
    path, reads = saved(), Reads()
    got = [reads(path) for _ in range(9)]
    assert (reads.read, reads.acted) == (1, 8)
    got[-1][:] = 0
    reads(path)
    assert len({each.__array_interface__["data"][0] for each in got}) == 9


@pytest.mark.parametrize(
    ("function", "text"),
    [(np.loadtxt, "1 2\n3 4\n"), (np.genfromtxt, "1 2\n3 4\n"), (lambda path: np.fromfile(path, np.uint8), "abc")],
)
def test_other_functions_that_read_files_are_answered_too(function, text):
    Path("x.txt").write_text(text)
    reads = Reads(function)
    for _ in range(5):
        reads("x.txt")
    assert reads.acted == 4


CHANGES = {
    "write": lambda path: saved(path, seed=1),
    "replace": lambda path: os.replace(saved("b.npy", seed=2), path),
    "one value": lambda path: _poke(path),
    "shorter": lambda path: saved(path, size=3),
    "copied over": lambda path: shutil.copy(saved("b.npy", seed=3), path),
    "a link": lambda path: (os.remove(path), os.symlink(saved("b.npy", seed=4), path)),
    "through a map": lambda path: np.load(path, mmap_mode="r+").__setitem__(0, 7.0),
}


def _poke(path):
    with open(path, "r+b") as file:
        file.seek(200)
        file.write(b"abc")


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_written_to_is_read_anew(change):
    path, reads = saved(), Reads()
    for turn in range(12):
        if turn in (5, 8):
            CHANGES[change](path)
        reads(path)
    assert reads.acted > 0


def test_writes_through_a_map_are_seen_however_often():
    path, reads = saved(), Reads()
    mapped = np.load(path, mmap_mode="r+")
    for turn in range(9):
        mapped[turn] = turn
        reads(path)
    path = saved("b.npy")
    for _ in range(4):
        reads(path)
    later = np.load(path, mmap_mode="r+")
    for turn in range(9):
        later[turn] = turn
        reads(path)
    assert reads.acted == 3


def test_a_relative_name_is_another_file_in_another_folder():
    reads = Reads()
    saved()
    os.mkdir("other")
    saved("other/a.npy", seed=5)
    found = [reads("a.npy") for _ in range(4)]
    os.chdir("other")
    found += [reads("a.npy") for _ in range(4)]
    os.chdir("..")
    assert not np.array_equal(found[3], found[4])
    assert (reads.read, reads.acted) == (2, 6)


def test_arguments_are_part_of_what_is_asked_for():
    Path("x.txt").write_text("1 2\n3 4\n")
    reads = Reads(np.loadtxt)
    for _ in range(4):
        reads("x.txt")
        reads("x.txt", skiprows=1)
        reads(Path("x.txt"), dtype=np.float32)
    assert reads.acted == 9


def test_what_was_written_just_now_is_not_kept(monkeypatch):
    monkeypatch.setattr(known_files, "_RESTED_NS", 3_000_000_000)
    path, reads = saved(), Reads()
    for _ in range(5):
        reads(path)
    assert reads.acted == 0


def test_a_file_system_that_may_tell_late_is_left_alone(monkeypatch):
    monkeypatch.setattr(known_files, "_kind_of", lambda device: "nfs4")
    path, reads = saved(), Reads()
    for _ in range(5):
        reads(path)
    assert reads.acted == 0
    assert reads.left == ["a.npy lies on a file system that may tell late (nfs4)"]


def test_what_is_no_array_by_itself_is_not_kept():
    np.savez("x.npz", a=np.ones(3))
    np.save("objects.npy", np.array([{}, 1], dtype=object))
    reads = Reads()
    for _ in range(5):
        with open(saved(), "rb") as file:
            reads._call(file)
        reads._call("x.npz")
        reads._call("objects.npy", allow_pickle=True)
        reads._call(saved("m.npy"), mmap_mode="r")
        with pytest.raises(FileNotFoundError):
            reads._call("missing.npy")
    assert reads.acted == 0


def test_what_does_not_fit_is_read_each_time():
    path, reads = saved(), Reads(fits=lambda num_bytes, owner: False)
    for _ in range(5):
        reads(path)
    assert reads.acted == 0
    assert "does not fit" in reads.left[0]


class Always:
    """The pace of proofs that are always due."""

    due = True

    def proving(self):
        return open(os.devnull)


@pytest.mark.parametrize("on_change", ["stop", "warn"])
def test_a_proof_that_fails_ends_it(on_change, monkeypatch):
    path, reads = saved(), Reads(pace=Always(), on_change=on_change)
    for _ in range(5):
        reads(path)
    assert (reads.acted, reads.read) == (0, 5)
    os.replace(saved("b.npy", seed=9), path)
    monkeypatch.setattr(kept_reads, "identity_of", lambda path: next(iter(reads.kept._read.values())).signature)
    if on_change == "stop":
        with pytest.raises(ChangedTooLate, match=r"a\.npy"):
            reads(path)
    else:
        with pytest.warns(RuntimeWarning, match="other values"):
            reads(path)
    assert reads.kept.off
    reads(path)


def test_the_kind_of_a_file_system_is_found(monkeypatch):
    monkeypatch.undo()
    assert known_files._kind_of(os.stat("/proc").st_dev) == "proc"
    assert known_files._kind_of(1 << 30) == "unknown"


def test_a_process_that_is_forked_reads_and_keeps_nothing():
    path, reads = saved(), Reads()
    for _ in range(3):
        reads(path)
    assert reads.acted == 2
    child = os.fork()
    if not child:
        for _ in range(3):
            reads._call(path)
        os._exit(reads.acted - 2)
    assert os.waitpid(child, 0)[1] == 0
    reads(path)
    assert reads.acted == 3


def test_what_nobody_reads_any_more_is_forgotten():
    reads = Reads()
    reads(saved())
    ref = weakref.ref(reads.kept)
    del reads
    gc.collect()
    assert ref() is None


class Members(Reads):
    """`numpy.load(path)[key]` as it stands under the fix."""

    def __init__(self, **about):
        super().__init__(function=np.lib.npyio.NpzFile.__getitem__, **about)
        self._call = self.kept.members(self._original)


def archived(name="a.npz", seed=0, save=np.savez_compressed, **more):
    chance = np.random.default_rng(seed)
    save(name, x=chance.standard_normal((9, 4)), y=np.asfortranarray(chance.integers(0, 9, (3, 5))), **more)
    return name


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_an_archive_are_unpacked_once_and_are_the_callers_own(save):
    reads, name = Members(), archived(save=save)
    for _ in range(3):
        with np.load(name) as archive:
            for key in ("x", "y", "x.npy"):
                reads(archive, key)[0] = 5
    assert (reads.read, reads.acted) == (3, 6)
    archived(seed=1, save=save)
    with np.load(name) as archive:
        reads(archive, "x")
    assert (reads.read, reads.acted, reads.left) == (4, 6, [])


def test_an_archive_that_was_replaced_while_it_was_open_gives_what_it_holds():
    reads, name = Members(), archived()
    with np.load(name) as old:
        reads(old, "x")
        os.rename(archived("b.npz", seed=1), name)
        with np.load(name) as new:
            assert not np.array_equal(reads(old, "x"), reads(new, "x"))
            reads(new, "x")


def test_members_that_are_no_arrays_or_not_there_are_as_ever():
    reads = Members()
    name = archived(objects=np.array([{}, None], dtype=object))
    with np.load(name, allow_pickle=True) as archive:
        assert reads._call(archive, "objects")[1] is None
        assert reads._call(archive, "objects")[1] is None
        with pytest.raises(KeyError, match="z is not a file"):
            reads._call(archive, "z")
    assert (reads.read, reads.acted) == (3, 0)
    with np.load(name) as archive, pytest.raises(ValueError, match="allow_pickle"):
        reads._call(archive, "objects")


def test_an_archive_in_memory_is_not_kept():
    file = io.BytesIO(Path(archived()).read_bytes())
    reads = Members()
    with np.load(file) as archive:
        reads(archive, "x"), reads(archive, "x")
    assert (reads.read, reads.acted) == (2, 0)


def test_a_dictionary_is_kept_and_an_archive_is_opened_each_time():
    torch.save({"weight": torch.ones(3)}, "a.pt")
    for function, name, acted in ((torch.load, "a.pt", 2), (np.load, archived(), 0)):
        reads = Reads(function)
        found = [reads._call(name) for _ in range(3)]
        assert (reads.acted, reads.left) == (acted, [])
        assert found[0] is not found[2]


class Scaled:
    """A class of the script's own, which gives other numbers each time."""

    factor = 1

    def __new__(cls, text):
        return float(text) * cls.factor


@pytest.mark.parametrize("converters", [Scaled, {0: Scaled}, float, np.float32])
def test_classes_of_the_scripts_may_do_anything(converters):
    Path("x.txt").write_text("1 2\n3 4\n")
    reads = Reads(np.loadtxt)
    for Scaled.factor in (1, 2, 3):
        reads("x.txt", converters=converters)
    assert reads.acted == (2 if converters in (float, np.float32) else 0)


def test_an_encoding_may_be_the_scripts_own():
    Path("x.txt").write_text("1 2\n3 4\n")
    reads = Reads(np.loadtxt)
    for encoding in (*["utf-8"] * 3, *["cp1252"] * 3):
        reads("x.txt", encoding=encoding)
    assert reads.acted == 2


class Drawn:
    """What comes of reading it is drawn each time."""

    def __reduce__(self):
        return drawn, ()


def drawn():
    return np.random.rand(2)


def test_a_pickle_in_place_of_an_array_is_read_each_time():
    Path("a.npy").write_bytes(pickle.dumps(Drawn()))
    reads = Reads()
    found = [reads._call("a.npy", allow_pickle=True) for _ in range(3)]
    assert reads.acted == 0 and found[1].tolist() != found[2].tolist()
    saved("b.npy")
    for _ in range(3):
        reads("b.npy", allow_pickle=True)
        reads("b.npy", None, True)
    assert reads.acted == 4


class Loads:
    """`torch.load` as it stands under the fix."""

    def __init__(self):
        self.acted = 0
        self.kept = KeptReads(Reports(pace=Never()), self._act, lambda num_bytes, owner: True)
        self.call = self.kept.reading("torch.load", torch.load)

    def _act(self):
        self.acted += 1


def test_a_file_of_weights_is_kept_and_one_that_runs_code_is_not():
    loads = Loads()
    torch.save({"w": torch.arange(3.0)}, "w.pt")
    torch.save(Drawn(), "d.pt")
    for _ in range(3):
        assert loads.call("w.pt")["w"].tolist() == loads.call("w.pt", weights_only=True)["w"].tolist() == [0, 1, 2]
        assert loads.call("w.pt", weights_only=False)["w"].tolist() == [0, 1, 2]
    assert loads.acted == 4
    found = [loads.call("d.pt", weights_only=False).tolist() for _ in range(3)]
    assert loads.acted == 4 and found[1] != found[2]


def test_a_load_without_data_and_one_that_is_watched_are_made():
    loads = Loads()
    for name, number in (("a.pt", 0.0), ("b.pt", 7.0)):
        torch.save({"w": torch.arange(3.0) + number}, name)
    for _ in range(3):
        loads.call("a.pt")
    with torch.serialization.skip_data():
        assert loads.call("a.pt")["w"].tolist() != [0, 1, 2]
        loads.call("b.pt"), loads.call("b.pt")
    assert loads.acted == 2
    assert loads.call("b.pt")["w"].tolist() == [7, 8, 9]
    names = []

    class Watching(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            names.append(function)
            return function(*args, **(kwargs or {}))

    with FakeTensorMode():
        assert type(loads.call("a.pt")["w"]).__name__ == "FakeTensor"
    with Watching():
        loads.call("a.pt")
    assert loads.acted == 2 and torch.Tensor.clone not in names and names


def test_what_warns_is_read_each_time_whatever_became_of_the_warning():
    for name in ("a.txt", "b.txt"):
        Path(name).write_text("1,2\n3,4,5\n6,7\n")
    Path("good.txt").write_text("1,2\n3,4\n")
    for action in ("default", "ignore"):
        reads = Reads(np.genfromtxt)
        for _ in range(3):
            reads("good.txt", delimiter=",", invalid_raise=False)
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            for name in ("a.txt", "b.txt"):  # their warnings have the same words
                reads._call(name, delimiter=",", invalid_raise=False)
        seen = 0
        for name in ("a.txt", "b.txt") * 2:
            with warnings.catch_warnings(record=True) as shown:
                warnings.simplefilter("always")
                reads._call(name, delimiter=",", invalid_raise=False)
            seen += len(shown)
        assert (seen, reads.acted) == (4, 2)


@pytest.mark.parametrize("made", [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 3))), np.ones(4)])
def test_an_array_holds_its_numbers_as_the_one_that_was_read(made):
    np.save("a.npy", made)
    reads = Reads()
    plain, got = np.load("a.npy"), [reads("a.npy") for _ in range(3)][-1]
    assert reads.acted == 2
    for one, other in zip((plain, plain.base), (got, got.base), strict=True):
        assert type(one) is type(other)
        if one is not None:
            assert one.shape == other.shape and one.strides == other.strides and str(one.flags) == str(other.flags)


def test_an_archive_that_was_opened_before_its_file_was_written_anew_fails_as_ever():
    reads = Members()
    np.savez("z.npz", a=np.zeros(3))
    old = np.load("z.npz")
    np.savez("z.npz", b=np.ones(1), a=np.full(3, 5.0))
    new = np.load("z.npz")
    for _ in range(2):
        assert reads(new, "a").tolist() == [5, 5, 5]
        with pytest.raises(zipfile.BadZipFile):
            reads._call(old, "a")
    assert reads.acted == 1


def test_who_replaces_open_sees_each_read(monkeypatch):
    path, reads, opened, plain = saved(), Reads(), [], open
    for _ in range(2):
        reads(path)
    monkeypatch.setattr(builtins, "open", lambda *args, **how: opened.append(args) or plain(*args, **how))
    for _ in range(3):
        reads._call(path)
    assert (len(opened), reads.acted) == (3, 1)
    monkeypatch.undo()


def test_who_hears_of_files_hears_of_each_read(monkeypatch):
    path, reads = saved(), Reads()
    monkeypatch.setattr(known_files, "_heard", [])
    reads(path), reads(path)
    assert reads.acted == 1
    exec("import sys\nsys.addaudithook(lambda event, about: None)", {"__name__": "flatout.watch.files.opened_files"})
    reads(path)
    assert reads.acted == 2
    exec("import sys\nsys.addaudithook(lambda event, about: None)", {"__name__": "__main__"})
    reads(path)
    assert reads.acted == 2


def test_somebody_else_may_not_read_what_one_may(monkeypatch):
    path, reads = saved(), Reads()
    reads(path), reads(path)
    assert reads.acted == 1
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    reads(path)
    assert reads.acted == 1
