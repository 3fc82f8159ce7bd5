"""What becomes of files when a start has ended: thrown away with the copy, or put back and named."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.e2e.support import why_no_private_world

from flatout.engine.process.aftermath import Aftermath
from flatout.engine.process.journal_claims import write_claim
from flatout.engine.process.launch import read_notes

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(workdir):
    for name in ("a.txt", "sub/b.txt"):
        (workdir / name).parent.mkdir(exist_ok=True)
        (workdir / name).write_text("mine")
    made = workdir / ".flatout" / "train.py" / "now"
    made.mkdir(parents=True)
    journal = write_claim(made, str(workdir))
    (journal / "working").write_bytes(os.fsencode(workdir))
    return made


def lived_through(folder, command):
    """Run `command` from its start to the end of its aftermath; return whether it had a private copy."""
    working = folder.parents[2]
    journal = write_claim(folder, str(working))
    aftermath = Aftermath(str(working), str(folder), folder, str(journal), command)
    try:
        aftermath.start(lambda enter: subprocess.Popen(command, cwd=working, preexec_fn=enter)).wait()
    finally:
        aftermath.end()
    return aftermath.private


WRITES = [
    "sh",
    "-c",
    "echo new > a.txt; rm sub/b.txt; mkdir runs; echo x > runs/c.txt; head -c 17000000 /dev/zero > big",
]


@pytest.mark.skipif(bool(why_no_private_world()), reason=f"no private copy here: {why_no_private_world()}")
def test_new_files_are_kept_in_the_recording_and_the_user_s_are_as_they_were(folder, workdir):
    assert lived_through(folder, WRITES)
    written = folder / "files" / "written"
    assert [path.relative_to(written) for path in written.rglob("*") if path.is_file()] == [Path("runs/c.txt")]
    assert sorted(os.listdir(workdir)) == [".flatout", "a.txt", "sub"]
    assert (workdir / "a.txt").read_text() == "mine"
    assert read_notes(folder) == []


def test_without_a_copy_what_a_shell_changed_is_named_in_the_session_s_notes(folder, workdir, monkeypatch):
    monkeypatch.setenv("FLATOUT_WORLD", "off")
    assert not lived_through(folder, WRITES)
    why, named = read_notes(folder)
    assert why.startswith("there is no private copy of the file system here (it is switched off)")
    for name, how in (("a.txt", "changed"), ("sub/b.txt", "removed"), ("runs", "new"), ("big", "new")):
        assert f"{workdir / name} ({how})" in named
        assert f"{workdir / name} ({how})\n" in (folder / "files" / "past-the-guard.txt").read_text()


@pytest.mark.skipif(bool(why_no_private_world()), reason=f"no private copy here: {why_no_private_world()}")
def test_a_command_that_does_not_exist_is_not_taken_for_a_copy_that_cannot_be(folder):
    with pytest.raises(FileNotFoundError):
        lived_through(folder, ["/no/such/command"])
    assert read_notes(folder) == []


def test_pipes_of_processes_that_took_turns_are_removed(folder, monkeypatch):
    monkeypatch.setenv("FLATOUT_WORLD", "off")
    (folder / "turns").mkdir()
    os.mkfifo(folder / "turns" / "bell-0")
    lived_through(folder, ["true"])
    assert os.listdir(folder / "turns") == []
