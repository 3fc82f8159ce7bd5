"""What a killed run left is cleared away; what came with a folder from somebody else is followed in nothing."""

import json
import os
import shutil
from pathlib import Path

import pytest

from flatout.engine.process.journal_claims import claims, write_claim
from flatout.engine.process.leftovers import refusals, restore_left_over, settle_left_over
from flatout.engine.process.run_folder import one_at_a_time, run_folder
from flatout.errors import UsageError
from flatout.state_folder import journal_folder


@pytest.fixture
def home(workdir, monkeypatch):
    """A user's home with a file that is dear to him, and a project."""
    monkeypatch.setenv("XDG_STATE_HOME", str(workdir / "state"))
    monkeypatch.setenv("TMPDIR", str(workdir / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (workdir / "temporary").mkdir()
    (workdir / "precious.txt").write_text("mine")
    (workdir / "project").mkdir()
    monkeypatch.chdir(workdir / "project")
    return workdir


def recording(home, project="project"):
    folder = home / project / ".flatout" / "train.py" / "now"
    (folder / "files" / "kept").mkdir(parents=True, exist_ok=True)
    return folder


def entry(act, place, other="", number=0):
    return "\n" + json.dumps({"act": act, "place": str(place), "other": str(other), "number": number}) + "\n"


ATTACKS = {
    "an absolute path": lambda home, kept: entry("kept", home / "precious.txt", kept),
    "a path with dots": lambda home, kept: entry("kept", f"{home}/project/../precious.txt", kept),
    "a removal": lambda home, kept: entry("created", home / "precious.txt"),
    "a removal of a folder": lambda home, kept: entry("folder", home / "project"),
    "a mode": lambda home, kept: entry("stat", home / "precious.txt", "1 1 1", 0o777),
    "a rename": lambda home, kept: entry("renamed", home / "precious.txt", home / "project"),
    "a tree": lambda home, kept: entry("tree", home / "precious.txt", kept.parent),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("depth", ["", "trials/0001/"])
def test_a_journal_that_came_with_the_folder_is_refused_with_one_line(home, attack, depth):
    files = recording(home) / depth / "files"
    (files / "kept").mkdir(parents=True, exist_ok=True)
    (files / "kept" / "1").write_text("evil")
    (files / "journal").write_text(ATTACKS[attack](home, files / "kept" / "1"))
    told = settle_left_over(None, lambda _: None)
    assert (home / "precious.txt").read_text() == "mine"
    assert (home / "precious.txt").stat().st_mode & 0o777 != 0o777
    assert (files / "kept" / "1").read_text() == "evil"
    assert len(told) == 1
    assert "is not a journal of yours" in told[0]


@pytest.mark.parametrize("name", ["guard.lock", "guard.json", "files/notes.txt", "files/claim", "files/journal"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_in_a_foreign_folder_are_neither_followed_nor_waited_for(home, name, kind):
    place = recording(home) / name
    if kind == "link":
        place.symlink_to(home / "precious.txt")
    else:
        os.mkfifo(place)
    settle_left_over(None, lambda _: None)
    assert (home / "precious.txt").read_text() == "mine"


def killed_in(home):
    """Leave a project as a run does that is killed together with its guard; return the recording."""
    folder = recording(home)
    journal = write_claim(folder, str(home / "project"))
    (home / "project" / "a.txt").write_text("changed")
    (folder / "files" / "kept" / "1").write_text("mine")
    (journal / "journal").write_text(
        entry("kept", home / "project" / "a.txt", folder / "files" / "kept" / "1")
        + entry("kept", home / "precious.txt", folder / "files" / "kept" / "2")
    )
    (journal / "journal").chmod(0o600)
    (folder / "guard.lock").touch()
    return folder


def test_the_user_s_own_journal_is_followed_and_forgotten(home):
    folder = killed_in(home)
    assert settle_left_over(None, lambda _: None) == [
        f"files that a killed run had changed were restored from {folder}"
    ]
    assert (home / "project" / "a.txt").read_text() == "mine"
    assert not (folder / "guard.lock").exists()
    assert claims() == []


def test_a_project_that_was_copied_puts_nothing_back(home, monkeypatch):
    killed_in(home)
    shutil.copytree(home / "project", home / "copy")
    monkeypatch.chdir(home / "copy")
    assert settle_left_over(None, lambda _: None) == []
    assert (home / "project" / "a.txt").read_text() == "changed", "it is that project's, when it is its turn"
    assert (home / "copy" / "a.txt").read_text() == "changed"


def test_a_project_that_was_moved_puts_nothing_back_and_says_so_once(home, monkeypatch):
    killed_in(home)
    (home / "project").rename(home / "moved")
    monkeypatch.chdir(home / "moved")
    assert settle_left_over(None, lambda _: None) == [
        f"nothing was restored from a run that was killed: {home / 'project'} was moved or replaced since"
    ]
    assert (home / "moved" / "a.txt").read_text() == "changed"
    assert settle_left_over(None, lambda _: None) == []


def test_a_folder_that_became_a_link_is_not_followed(home):
    folder = killed_in(home)
    (home / "project" / "sub").symlink_to(home)
    with Path(journal_folder(str(folder)), "journal").open("a") as file:
        file.write(entry("created", home / "project" / "sub" / "precious.txt"))
    restore_left_over(None)
    assert (home / "precious.txt").read_text() == "mine"
    assert "a link now points elsewhere" in (folder / "files" / "not-restored.txt").read_text()


def test_a_journal_that_others_may_write_is_not_followed(home):
    folder = killed_in(home)
    Path(journal_folder(str(folder)), "journal").chmod(0o666)
    assert restore_left_over(None) == []
    assert (home / "project" / "a.txt").read_text() == "changed"


def test_nothing_is_recorded_through_a_link_that_came_with_the_folder(home):
    (home / "far").mkdir()
    (home / "project" / ".flatout").symlink_to(home / "far")
    with pytest.raises(UsageError, match=r"\.flatout is a link to"):
        run_folder(None, "train.py")
    (home / "project" / ".flatout").unlink()
    (home / "project" / ".flatout").mkdir()
    (home / "project" / ".flatout" / "train.py").symlink_to(home / "far")
    with pytest.raises(UsageError, match=r"train\.py is a link to"):
        run_folder(None, "train.py")
    assert list((home / "far").iterdir()) == []


def test_locks_and_pipes_of_a_killed_run_are_removed_and_those_in_use_are_not(home):
    turns = recording(home) / "trials" / "0001" / "turns"
    turns.mkdir(parents=True)
    os.mkfifo(turns / "bell-0")
    (turns / "bell-1").write_text("no pipe")
    left = home / "temporary" / f"flatout-{os.getuid()}-0123456789abcdef.lock"
    left.touch()
    with one_at_a_time():
        settle_left_over(None, lambda _: None)
        assert [path for path in (home / "temporary").glob("*.lock") if path != left]
    assert not left.exists()
    assert not (turns / "bell-0").exists()
    assert (turns / "bell-1").exists()


def test_what_a_guard_wrote_down_after_its_flatout_was_killed_is_told_once(home):
    (recording(home) / "files" / "notes.txt").write_text("1 file changed: a.txt\x1b[2J\n")
    told = settle_left_over(None, lambda _: None)
    assert told == ["of the run in .flatout/train.py/now, which was killed: 1 file changed: a.txt[2J"]
    assert settle_left_over(None, lambda _: None) == []


def test_without_anything_left_there_is_nothing_to_say(home):
    assert settle_left_over(None, lambda _: None) == []
    assert refusals(home / "nowhere") == []
