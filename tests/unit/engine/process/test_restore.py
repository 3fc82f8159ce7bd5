"""Journals that are damaged, foreign, or name what is no longer there: nothing that is not certain is touched."""

import json
from pathlib import Path

import pytest

from flatout.engine.process.journal_claims import write_claim
from flatout.engine.process.leftovers import restore_left_over
from flatout.engine.process.restore import restore_files
from flatout.state_folder import journal_folder


@pytest.fixture
def folder(workdir):
    made = workdir / ".flatout" / "train.py" / "now"
    (made / "files" / "kept").mkdir(parents=True)
    write_claim(made, str(workdir))
    (journal(made) / "known").mkdir()
    return made


def journal(folder):
    return Path(journal_folder(str(folder)))


def note(folder, act, place, other="", number=0):
    with (journal(folder) / "journal").open("a") as file:
        file.write("\n" + json.dumps({"act": act, "place": str(place), "other": str(other), "number": number}) + "\n")


def keep(folder, name, text):
    kept = folder / "files" / "kept" / name
    kept.write_text(text)
    return kept


def test_without_a_journal_nothing_happens(folder):
    assert restore_files(folder) == 0
    assert restore_files(folder / "nowhere") == 0


def test_without_a_journal_the_next_execution_begins_with_nothing_known(folder):
    (journal(folder) / "known" / "stale").write_text("/a/file")
    restore_files(folder)
    assert not (journal(folder) / "known").exists()


def test_what_was_kept_returns_and_what_is_new_goes(folder, workdir):
    (workdir / "a.txt").write_text("changed")
    (workdir / "b.txt").write_text("new")
    note(folder, "kept", workdir / "a.txt", keep(folder, "1", "original"))
    note(folder, "created", workdir / "b.txt")
    assert restore_files(folder) == 2
    assert (workdir / "a.txt").read_text() == "original"
    assert not (workdir / "b.txt").exists()
    assert not (journal(folder) / "journal").exists()
    assert not (folder / "files" / "kept").exists()


def test_a_second_call_changes_nothing(folder, workdir):
    note(folder, "kept", workdir / "a.txt", keep(folder, "1", "original"))
    restore_files(folder)
    (workdir / "a.txt").write_text("the user's next work")
    assert restore_files(folder) == 0
    assert (workdir / "a.txt").read_text() == "the user's next work"


@pytest.mark.parametrize(
    "damage",
    [b"\x00\xff\n", b"[]\n", b"{}\n", b'"text"\n', b'{"act": "kept"}\n', b"12\n", b'{"act": "cre', b"[" * 100_000],
)
def test_a_damaged_note_is_passed_over_and_the_others_are_undone(folder, workdir, damage):
    (workdir / "b.txt").write_text("new")
    with (journal(folder) / "journal").open("ab") as file:
        file.write(damage)
    note(folder, "created", workdir / "b.txt")
    assert restore_files(folder) == 1
    assert not (workdir / "b.txt").exists()


@pytest.mark.parametrize("field", ["act", "place", "other", "number"])
@pytest.mark.parametrize("value", [None, 3, [], "x"])
def test_a_note_with_a_foreign_value_is_no_crash(folder, workdir, field, value):
    entry = {"act": "created", "place": str(workdir / "b.txt"), "other": "", "number": 0, field: value}
    (journal(folder) / "journal").write_text(json.dumps(entry))
    restore_files(folder)


def test_a_note_whose_file_was_never_set_aside_leaves_the_place_alone(folder, workdir):
    (workdir / "a.txt").write_text("original")
    note(folder, "kept", workdir / "a.txt", folder / "files" / "kept" / "never")
    restore_files(folder)
    assert (workdir / "a.txt").read_text() == "original"


def test_a_rename_that_was_refused_leaves_both_folders_alone(folder, workdir):
    for name in ("one", "two"):
        (workdir / name).mkdir()
        (workdir / name / name).write_text(name)
    note(folder, "renamed", workdir / "one", workdir / "two", (workdir / "one").stat().st_ino)
    restore_files(folder)
    assert (workdir / "one" / "one").exists()
    assert (workdir / "two" / "two").exists()


def test_what_cannot_be_put_back_is_named_and_its_copy_stays(folder, workdir, monkeypatch):
    (workdir / "a.txt").write_text("changed")
    (workdir / "b.txt").write_text("new")
    kept = keep(folder, "1", "original")
    note(folder, "created", workdir / "b.txt")
    note(folder, "kept", workdir / "a.txt", kept)

    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr("flatout.engine.process.restore._put_back", refuse)
        assert restore_files(folder) == 1
    assert not (workdir / "b.txt").exists()
    told = (folder / "files" / "not-restored.txt").read_text()
    assert str(workdir / "a.txt") in told
    assert str(kept) in told
    restore_files(folder)
    assert kept.read_text() == "original"
    assert (workdir / "a.txt").read_text() == "changed", "it may be the user's own by now"


def test_new_files_that_cannot_be_moved_away_are_removed(folder, workdir, monkeypatch):
    (workdir / "b.txt").write_text("new")
    note(folder, "created", workdir / "b.txt")

    def no_room(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.move", no_room)
    restore_files(folder)
    assert not (workdir / "b.txt").exists()


def test_two_new_files_of_one_name_are_both_kept(folder, workdir):
    (journal(folder) / "working").write_text(str(workdir))
    for text in ("timed", "deep"):
        (workdir / "runs").mkdir()
        (workdir / "runs" / "b.txt").write_text(text)
        note(folder, "folder", workdir / "runs")
        note(folder, "created", workdir / "runs" / "b.txt")
        restore_files(folder)
    written = folder / "files" / "written" / "runs"
    assert {file.read_text() for file in written.iterdir()} == {"timed", "deep"}


def test_a_diagnosis_puts_back_what_an_earlier_one_left(folder, workdir):
    (workdir / "a.txt").write_text("changed")
    note(folder, "kept", workdir / "a.txt", keep(folder, "1", "original"))
    assert restore_left_over(None) == [folder]
    assert (workdir / "a.txt").read_text() == "original"
    assert restore_left_over(None) == []


def test_folders_of_other_things_are_no_left_overs(workdir):
    assert restore_left_over(None) == []
    (workdir / ".flatout").write_text("a file")
    assert restore_left_over(None) == []
    assert restore_left_over(workdir / "nowhere") == []
