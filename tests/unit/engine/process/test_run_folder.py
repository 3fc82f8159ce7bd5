"""One flatout at a time in a working folder, told by a file that goes with it."""

import os
import threading
import time

import pytest

from flatout.engine.process.run_folder import one_at_a_time
from flatout.errors import UsageError


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Return an empty folder for temporary files, with a working folder beside it."""
    folder, work = tmp_path / "temporary", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.chdir(work)
    return folder


def test_a_second_one_is_told_who_is_at_work_and_where(temporary, tmp_path):
    with one_at_a_time():
        with pytest.raises(UsageError, match=rf"process {os.getpid()}\) is running in {tmp_path}/work"):
            one_at_a_time().__enter__()
        assert len(list(temporary.iterdir())) == 1


def test_nothing_is_left_behind_and_the_folder_is_free_again(temporary):
    for _ in range(2):
        with pytest.raises(ValueError), one_at_a_time():
            raise ValueError
        assert list(temporary.iterdir()) == []


def test_another_folder_is_free(temporary, tmp_path, monkeypatch):
    with one_at_a_time():
        monkeypatch.chdir(tmp_path)
        with one_at_a_time():
            assert len(list(temporary.iterdir())) == 2


def test_of_many_that_come_and_go_never_two_are_there(temporary):
    there, most = [], []

    def come_and_go():
        for _ in range(25):
            try:
                with one_at_a_time():
                    there.append(1)
                    time.sleep(0.0005)
                    most.append(len(there))
                    there.pop()
            except UsageError:
                pass

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert list(temporary.iterdir()) == []


def test_a_link_laid_there_by_somebody_else_is_not_followed(temporary, tmp_path):
    with one_at_a_time():
        (name,) = (path.name for path in temporary.iterdir())
    precious = tmp_path / "precious.txt"
    precious.write_text("weights")
    (temporary / name).symlink_to(precious)
    with pytest.raises(UsageError, match="cannot be written"):
        one_at_a_time().__enter__()
    assert precious.read_text() == "weights"


def test_a_folder_that_cannot_be_written_is_told(temporary, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "gone"))
    with pytest.raises(UsageError, match="cannot be written"):
        one_at_a_time().__enter__()
