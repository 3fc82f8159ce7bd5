"""One file opened in several ways under buffered-files: the same bytes, whoever looks, and errors that are told.

Covers flatout.fixes.text_files.gathered_writer and flatout.fixes.text_files.written_handles, too.
"""

import contextlib
import errno
import os
import random
import threading
from pathlib import Path

import pytest
from tests.unit.fixes.test_buffered_files import _behind, appended, on_disk, steps, texts_step
from tests.unit.fixes.training import under

from flatout.fixes.text_files import text_file, write_behind

pytestmark = pytest.mark.slow
# ruff: noqa: SIM115 - files that stay open are what it is about

FIX_NAME = "buffered-files"


@pytest.fixture
def process(workdir, monkeypatch):
    """Files under the fix, in a folder of their own, with a thread that writes only when it is told to."""
    monkeypatch.setattr(write_behind, "DELAY_S", 1000)
    with under(FIX_NAME) as process:
        yield process
        assert not process.site.failure


def test_lines_stay_in_order_where_a_second_way_was_opened_and_is_flushed_later(process):
    other = []

    def act(step):
        with open("log.txt", "a") as file:
            file.write(f"A{step} ")
        if step == 5:
            other.append(open("log.txt", "a", encoding="utf-8"))
        if step >= 6:
            other[0].write(f"B{step} ")
            other[0].flush()

    steps(9, act)
    other[0].close()
    assert Path("log.txt").read_text() == "A0 A1 A2 A3 A4 A5 A6 B6 A7 B7 A8 B8 "


def test_lines_stay_in_order_where_a_second_way_overflows_its_buffer(process):
    steps(5, appended)
    other = open("log.txt", "a", encoding="utf-8")
    appended(5)
    other.write("x" * 20_000)
    appended(6)
    other.close()
    assert Path("log.txt").read_text() == "".join(map("{}\n".format, range(6))) + "x" * 20_000 + "6\n"


def test_a_handle_that_gathers_goes_on_where_it_was_when_others_write(process):
    def act(step):
        with open("log.txt", "w") as file:
            file.write("one")
            file.flush()
            if step == 6:
                with open("log.txt", "a") as other:
                    other.write(" two, which is longer")
            file.write("ONE")

    steps(7, act)
    assert Path("log.txt").read_text() == "oneONEo, which is longer"


def test_a_handle_that_gathers_writes_to_its_file_when_that_has_another_name(process):
    def act(step):
        with open("log.txt", "a") as file:
            file.write(f"{step}\n")
            file.flush()
            if step == 6:
                os.rename("log.txt", "log.1.txt")
                Path("log.txt").write_text("new\n")
            file.write("end\n")

    steps(7, act)
    assert Path("log.txt").read_text() == "new\n"
    assert Path("log.1.txt").read_text().endswith("5\nend\n6\nend\n")


def test_a_file_that_was_opened_while_the_fix_was_off_and_stays_open_is_in_order(process):
    steps(6, appended)
    process.site.disable()
    kept = open("log.txt", "a")
    process.site.enable()
    for step in range(6, 10):
        texts_step(process)
        appended(step)
        kept.write(f"kept {step}\n")
        kept.flush()
    kept.close()
    wanted = [f"{step}\n" for step in range(6)]
    wanted += [line for step in range(6, 10) for line in (f"{step}\n", f"kept {step}\n")]
    assert Path("log.txt").read_text() == "".join(wanted)


@pytest.mark.parametrize("move", [lambda file, step: file.seek(step % 2), lambda file, step: file.truncate(step + 1)])
def test_the_place_in_a_file_that_is_appended_to_is_its_end_after_each_write(workdir, monkeypatch, move):
    monkeypatch.setattr(write_behind, "DELAY_S", 1000)
    results = []
    for fix in (contextlib.nullcontext(), under(FIX_NAME)):
        found = []
        with fix, open(f"{len(results)}.txt", "a") as file:
            for step in range(4):
                file.write(f"{step}\n")
                file.flush()
                found += [
                    move(file, step),
                    file.write("ab"),
                    file.flush(),
                    file.tell(),
                    file.seek(0, os.SEEK_END),
                    file.tell(),
                ]
                found += [file.write("end"), file.tell()]
        results.append((found, Path(f"{len(results)}.txt").read_text()))
    assert results[0] == results[1]


def test_entries_of_a_folder_tell_what_was_flushed_after_they_were_listed(process):
    with open("log.txt", "w") as file:
        for step in range(4):
            steps(1, lambda step: None)
            file.write("x")
            file.flush()
            entries = [each for each in os.scandir() if each.name == "log.txt"]
            file.write("yz")
            file.flush()
            assert [each.stat().st_size for each in entries] == [3 * step + 3]
    assert process.site.hits["written later"] > 1


# ------------------------------------------------------------------------------------------ anything in any order
WAYS = [
    {"mode": "a"},
    {"mode": "a", "encoding": "utf-8"},
    {"mode": "a", "buffering": 1},
    {"mode": "w"},
    {"mode": "a", "buffering": 300},
    {"mode": "ab"},
]


class Script:
    """Writes to a file in several ways, in an order made from a seed, and notes what is seen of it."""

    def __init__(self, seed):
        self.rng, self.seen, self.handles = random.Random(seed), [], []
        self.usual, self.other = self.rng.sample(WAYS, 2)

    def run(self):
        steps(self.rng.choice([8, 25]), self._step)
        self._look("log.1.txt")
        for file in self.handles:
            file.close()
        self._look("log.txt")
        self._look("log.1.txt")
        return self.seen

    def _step(self, step):
        with open("log.txt", **self.usual) as file:
            self._write(file, f"{step} usual\n", [1, 1, 30])
            if self.handles and self._now(0.3):
                self._write(self.handles[0], f"{step} between\n", [1])
                self.handles[0].flush()
            if self._now(0.1):
                file.flush()
                self._look("log.txt")
            self._write(file, f"{step} end\n", [1])
        if self.handles and self._now(0.7):
            self._write(self.rng.choice(self.handles), f"{step} other\n", [1, 1, 30, 3000])
        if self.handles and self._now(0.5):
            self.rng.choice(self.handles).flush()
        self._change()

    def _change(self):
        if self._now(0.15):
            self.handles.append(open("log.txt", **(self.other if self._now(0.8) else self.usual)))
        if self.handles and self._now(0.15):
            self.handles.pop().close()
        if self._now(0.1):
            self._look("log.txt")
        if self._now(0.05):
            os.replace("log.txt", "log.1.txt")
            Path("log.txt").touch()

    def _now(self, share):
        return self.rng.random() < share

    def _write(self, file, text, times):
        text *= self.rng.choice(times)
        file.write(text.encode() if "b" in file.mode else text)

    def _look(self, path):
        self.seen.append(Path(path).read_bytes() if os.path.exists(path) else None)


@pytest.mark.parametrize("first", range(0, 40, 8))
@pytest.mark.few(2)
def test_ways_in_any_order_give_the_same_bytes_at_each_look(workdir, first, monkeypatch):
    monkeypatch.setattr(write_behind, "DELAY_S", 1000)
    for seed in range(first, first + 8):
        results = []
        for fix in (contextlib.nullcontext(), under(FIX_NAME)):
            folder = workdir / f"{seed} {len(results)}"
            folder.mkdir()
            monkeypatch.chdir(folder)
            with fix as process:
                results.append(Script(seed).run())
                assert process is None or not process.site.failure
        assert results[0] == results[1], seed


# ------------------------------------------------------------------------------------------ buffers, and the thread
@pytest.mark.parametrize("options", [{}, {"buffering": 300}, {"buffering": 1}])
@pytest.mark.parametrize("again", [False, True])
def test_what_the_script_has_not_flushed_is_on_disk_when_it_would_be(workdir, options, again, monkeypatch):
    monkeypatch.setattr(write_behind, "DELAY_S", 1000)
    sizes = []
    for fix in (contextlib.nullcontext(), under(FIX_NAME)):
        with fix as process:
            found = []

            def act(step, found=found):
                with open("log.txt", "w", **options) as file:
                    for _ in range(30):
                        file.write("x" * 1000)
                        if process is not None:
                            _behind().settle()
                        found.append(_size("log.txt") if process is None else len(on_disk("log.txt")))

            steps(6 if again else 1, act)
            sizes.append(found)
    assert sizes[0] == sizes[1]
    assert max(sizes[0]) > 0


def _size(path):
    return len(Path(path).read_bytes())


def broken(number):
    raise OSError(errno.EIO, "the disk is broken")


@pytest.fixture
def syncs(monkeypatch, workdir):
    """Let syncs fail from when the list is not empty, before the fix takes `os.fsync`."""
    broken_now, plain = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: broken(number) if broken_now else plain(number))
    return broken_now


def synced(file, text):
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


NEXT = {
    "flush": lambda file: file.flush(),
    "sync": lambda file: os.fsync(file.fileno()),
    "close": lambda file: file.close(),
}


@pytest.mark.parametrize("name", NEXT)
def test_a_sync_that_failed_is_told_at_the_next_chance_and_once(syncs, process, name):
    file = open("log.txt", "w")
    synced(file, "a\n")
    syncs.append(1)
    _behind().settle()
    syncs.clear()
    with pytest.raises(OSError, match="the disk is broken"):
        NEXT[name](file)
    if name == "close":
        assert file.closed
    else:
        synced(file, "b\n")
        file.close()
    assert on_disk("log.txt").startswith(b"a\n")


def test_a_sync_that_failed_after_the_file_was_closed_is_told_as_it_is_opened_next(syncs, process):
    with open("log.txt", "a") as file:
        synced(file, "a\n")
    syncs.append(1)
    _behind().settle()
    syncs.clear()
    with pytest.raises(OSError, match="the disk is broken"):
        open("log.txt", "a")
    with open("log.txt", "a") as file:
        synced(file, "b\n")
    assert Path("log.txt").read_text() == "a\nb\n"


def test_text_is_written_after_an_error_that_nobody_expects(workdir, monkeypatch):
    monkeypatch.setattr(write_behind, "DELAY_S", 0.01)
    write, failed = os.write, []

    def once(number, data):
        if not failed:
            failed.append(1)
            raise MemoryError
        return write(number, data)

    with under(FIX_NAME) as process:
        steps(5, appended)
        _behind().settle()
        monkeypatch.setattr(text_file, "_write", once)
        appended(5)
        _until(lambda: on_disk("log.txt").endswith(b"4\n5\n"))
        assert failed
        appended(6)
        _until(lambda: on_disk("log.txt").endswith(b"5\n6\n"))
        assert not process.site.failure


def test_a_thread_that_has_died_is_followed_by_another_one(workdir, monkeypatch):
    monkeypatch.setattr(write_behind, "DELAY_S", 0.01)
    monkeypatch.setattr(threading, "excepthook", lambda about: None)
    with under(FIX_NAME):
        steps(5, appended)
        behind = _behind()
        died = threading.Event()

        def settle():
            del behind.settle
            died.set()
            raise SystemError

        behind.settle = settle
        appended(5)
        assert died.wait(10)
        _until(lambda: not behind._thread.is_alive())
        appended(6)
        _until(lambda: on_disk("log.txt").endswith(b"5\n6\n"))


def _until(what):
    for _ in range(1000):
        if what():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come")


def test_files_are_known_and_forgotten_by_one_thread_at_a_time(process):
    steps(5, appended)
    behind, done = _behind(), threading.Event()

    def know():
        with open("other.txt", "w") as other:
            behind.file(os.path.abspath("other.txt"), other.fileno())
        done.set()

    with behind.lock:
        thread = threading.Thread(target=know)
        thread.start()
        assert not done.wait(0.2)
    thread.join(10)
    assert done.is_set()
