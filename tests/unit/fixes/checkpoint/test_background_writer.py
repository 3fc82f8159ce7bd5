"""Files written in the background: in order, whole, and waited for by whoever needs them."""

import os
import threading

import pytest

from flatout.fixes.checkpoint import background_writer
from flatout.fixes.checkpoint.background_writer import BackgroundWriter, PendingWrite, QuietThreads, content_of


@pytest.fixture
def gate():
    """Holds the writer until it is opened."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def writer():
    made = BackgroundWriter()
    yield made
    made.settle()


def pending(folder, name="model.pt", content=b"new", gate=None, error=None, **named):
    beside = folder / f".{name}.making"
    beside.mkdir()
    made = beside / name
    made.touch()

    def write(path):
        if gate is not None:
            gate.wait(60)
        if error is not None:
            raise error
        with open(path, "wb") as file:
            file.write(content)

    return PendingWrite(str(folder / name), str(made), write, **named)


def test_a_file_is_in_its_place_when_somebody_waits_for_it(writer, tmp_path, gate):
    assert writer.put(lambda: pending(tmp_path, gate=gate, saved_ns=10**9))
    assert not (tmp_path / "model.pt").exists()
    assert writer.concerned(str(tmp_path / "model.pt"))
    assert writer.concerned(str(tmp_path))
    assert writer.concerned(None)
    assert not writer.concerned(str(tmp_path / "model"))
    assert writer.place("model.pt") is None  # in whichever folder
    assert writer.place("other.pt") == os.path.realpath("other.pt")
    assert writer.place(str(tmp_path / "model.pt")) == str(tmp_path / "model.pt")
    writer.wait(str(tmp_path / "other.pt"))  # none of ours
    gate.set()
    writer.wait(str(tmp_path / "model.pt"))
    assert (tmp_path / "model.pt").read_bytes() == b"new"
    assert (tmp_path / "model.pt").stat().st_mtime_ns == 10**9
    assert os.listdir(tmp_path) == ["model.pt"]
    assert writer.place("model.pt") == os.path.realpath("model.pt")


def test_files_are_written_in_order_and_few_are_held(writer, tmp_path, gate, monkeypatch):
    monkeypatch.setattr(background_writer, "_MOST_WAITING", 2)
    done = []
    for number in range(2):
        writer.put(lambda n=number: pending(tmp_path, f"{n}.pt", gate=gate, done=lambda: done.append(n)))
    third = threading.Thread(target=lambda: writer.put(lambda: pending(tmp_path, "2.pt", done=lambda: done.append(2))))
    third.start()
    third.join(0.05)
    assert third.is_alive()  # until there is room
    gate.set()
    third.join()
    writer.wait()
    assert done == [0, 1, 2]


def test_what_cannot_be_prepared_is_not_written(writer, tmp_path):
    def fail():
        writer.unfinished = str(tmp_path / "half")
        os.mkdir(writer.unfinished)
        raise ValueError("cannot be pickled")

    with pytest.raises(ValueError, match="cannot be pickled"):
        writer.put(fail)
    assert not (tmp_path / "half").exists()
    assert not writer.put(lambda: None)
    assert not writer.pending


def test_an_error_is_raised_once_at_the_next_access(writer, tmp_path):
    writer.put(lambda: pending(tmp_path, error=OSError("disk is full")))
    with pytest.raises(OSError, match="disk is full"):
        writer.wait()
    writer.wait()
    assert os.listdir(tmp_path) == []


def test_an_error_that_nobody_was_told_of_shows_at_the_end(writer, tmp_path, capsys):
    writer.put(lambda: pending(tmp_path, error=OSError("disk is full")))
    assert writer.failed_at_end()
    assert "a checkpoint could not be written in the background" in capsys.readouterr().err
    assert not writer.failed_at_end()


def test_a_ctrl_c_does_not_end_the_waiting(writer, tmp_path, monkeypatch):
    asked = []

    def wait(path=None):
        asked.append(path)
        if len(asked) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(writer, "wait", wait)
    assert not writer.failed_at_end()
    assert len(asked) == 2


def test_a_file_that_was_written_there_meanwhile_stays(writer, tmp_path, gate, capsys):
    target = tmp_path / "model.pt"
    target.write_bytes(b"old")
    writer.put(lambda: pending(tmp_path, gate=gate, before=content_of(str(target))))
    target.write_bytes(b"by another program")
    gate.set()
    writer.wait()
    assert target.read_bytes() == b"by another program"
    assert "was written again after torch.save: that stays" in capsys.readouterr().err


def test_a_place_that_takes_no_other_file_gets_the_content(writer, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("Device or resource busy")

    monkeypatch.setattr(os, "replace", fail)
    writer.put(lambda: pending(tmp_path))
    writer.wait()
    assert (tmp_path / "model.pt").read_bytes() == b"new"


def test_those_who_asked_are_told_while_files_are_pending(writer, tmp_path):
    told = []
    writer.on_change.append(told.append)
    writer.put(lambda: pending(tmp_path))
    writer.settle()
    for thread in threading.enumerate():
        if thread.name == "flatout-checkpoint":
            thread.join()
    assert told[0] is True
    assert told[-1] is False


def test_a_child_waits_for_the_files_of_its_parent_and_writes_none(writer, tmp_path, gate):
    writer.put(lambda: pending(tmp_path, gate=gate))
    reader, told = os.pipe()
    child = os.fork()
    if not child:
        os.write(told, b"1")
        writer.wait(str(tmp_path / "model.pt"))
        os._exit((tmp_path / "model.pt").read_bytes() != b"new")
    os.read(reader, 1)
    gate.set()
    writer.wait()
    assert os.waitpid(child, 0)[1] == 0
    os.close(reader)
    os.close(told)


def test_a_thread_is_quiet_until_it_leaves_the_outermost_place():
    quiet, me = QuietThreads(), threading.get_ident()
    with quiet.quietly():
        with quiet.quietly():
            assert me in quiet.busy
        assert me in quiet.busy
    assert me not in quiet.busy


def test_only_number_and_size_make_a_file_another(tmp_path):
    file = tmp_path / "a"
    assert content_of(str(file)) is None
    file.write_bytes(b"123")
    first = content_of(str(file))
    os.utime(file, (0, 0))
    assert content_of(str(file)) == first
    file.write_bytes(b"1234")
    assert content_of(str(file)) != first
