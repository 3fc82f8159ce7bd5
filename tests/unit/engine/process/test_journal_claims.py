"""Claims on journals: this user's own, of this project and this start, or nothing."""

import fcntl
import json
import os
import stat
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from flatout.engine.process.journal_claims import CLAIM_FILE, LOCK_FILE, claims, drop, held, misfit, write_claim
from flatout.errors import UsageError
from flatout.state_folder import journal_folder, own_folder, state_folder


@pytest.fixture
def folder(workdir, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(workdir.parent / f"{workdir.name}-state"))
    (workdir / "project" / ".flatout" / "train.py" / "now").mkdir(parents=True)
    monkeypatch.chdir(workdir / "project")
    return workdir / "project" / ".flatout" / "train.py" / "now"


def claimed(folder):
    journal = write_claim(folder, os.getcwd())
    return journal, next(claim for place, claim in claims() if place == journal)


def test_a_claim_fits_what_it_was_made_for_and_is_for_its_user_alone(folder):
    journal, claim = claimed(folder)
    assert misfit(claim) == ""
    assert stat.S_IMODE(journal.stat().st_mode) == 0o700
    assert stat.S_IMODE((journal / CLAIM_FILE).stat().st_mode) == 0o600
    assert str(journal) == journal_folder(str(folder))
    assert not journal.is_relative_to(Path.cwd())
    drop(journal)
    assert claims() == []


def test_a_project_that_was_moved_or_replaced_does_not_fit(folder, workdir):
    _, claim = claimed(folder)
    (workdir / "project").rename(workdir / "elsewhere")
    assert misfit(claim) == f"{workdir / 'project'} was moved or replaced since"
    folder.mkdir(parents=True)
    assert "was moved or replaced since" in misfit(claim)


def test_a_recording_that_was_replaced_or_is_of_another_start_does_not_fit(folder):
    _, claim = claimed(folder)
    (folder / "files" / "claim").write_text("0" * 32)
    assert misfit(claim) == f"{folder} belongs to another start"
    folder.rename(folder.with_name("before"))
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "claim").write_text(claim.word)
    assert misfit(claim) == f"{folder} was moved or replaced since"


def test_the_word_in_a_recording_is_not_read_through_a_link(folder, workdir):
    _, claim = claimed(folder)
    (folder / "files" / "claim").rename(workdir / "claim")
    (folder / "files" / "claim").symlink_to(workdir / "claim")
    assert misfit(claim) == f"{folder} belongs to another start"


@pytest.mark.parametrize("change", [{"user": -5}, {"machine": "another"}, {"project": "relative"}, {"word": ""}])
def test_claims_of_others_and_broken_ones_are_passed_over(folder, change):
    journal, claim = claimed(folder)
    (journal / CLAIM_FILE).write_text(json.dumps(asdict(replace(claim, **change))))
    (journal / CLAIM_FILE).chmod(0o600)
    assert claims() == []


@pytest.mark.parametrize("text", ["", "[]", "{}", "\0", '{"user": 1}', "[" * 10_000])
def test_a_damaged_claim_is_none(folder, text):
    journal, _ = claimed(folder)
    (journal / CLAIM_FILE).write_text(text)
    assert claims() == []


def test_a_claim_that_others_may_write_is_none(folder):
    journal, _ = claimed(folder)
    (journal / CLAIM_FILE).chmod(0o666)
    assert claims() == []


def test_a_state_folder_that_is_a_link_is_refused(folder, workdir):
    (workdir / "far").mkdir()
    Path(state_folder()).parent.mkdir(parents=True)
    Path(state_folder()).symlink_to(workdir / "far")
    with pytest.raises(UsageError, match=r"cannot be used \(other users can access it\)"):
        write_claim(folder, os.getcwd())
    assert list((workdir / "far").iterdir()) == []


def test_a_folder_that_others_may_write_is_not_one_s_own(workdir):
    (workdir / "open").mkdir()
    (workdir / "open").chmod(0o777)
    with pytest.raises(PermissionError):
        own_folder(str(workdir / "open"))


def test_the_state_folder_is_where_the_user_says_and_else_in_his_home(workdir, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(workdir / "s"))
    assert state_folder() == str(workdir / "s" / "flatout")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(workdir))
    assert state_folder() == str(workdir / ".local" / "state" / "flatout")
    monkeypatch.setenv("FLATOUT_STATE", "/told")
    assert state_folder() == "/told"


def test_without_a_home_that_can_be_written_it_is_among_the_temporary_folders(monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/proc/none")
    monkeypatch.setattr(os, "access", lambda place, mode: not str(place).startswith("/proc"))
    assert os.path.basename(state_folder()) == f"flatout-state-{os.getuid()}"


def test_who_holds_the_lock_is_named_and_waited_for_only_so_long(folder):
    journal, _ = claimed(folder)
    told = []
    with (journal / LOCK_FILE).open("w+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.pwrite(lock.fileno(), b"4711", 0)
        with pytest.raises(UsageError) as failed, held(journal, told.append, wait_s=0.3):
            pass
    assert failed.value.fact.startswith("Process 4711 has held ")
    assert failed.value.advice == "Wait for it, or end it: kill 4711"
    assert set(told) == {"waiting for process 4711, which is restoring files"}
    with held(journal, told.append, wait_s=0.3):
        pass


def test_a_lock_that_is_a_pipe_does_not_hold_anybody_up(folder):
    journal, _ = claimed(folder)
    os.mkfifo(journal / LOCK_FILE)
    with held(journal, lambda _: None, wait_s=0.1):
        pass
