"""An edit bound to its files: what is served of it, and why it is dropped."""

import hashlib

import pytest

from flatout.edits.diff import unified_diff
from flatout.fixes.source.source_edit import SourceEdit, edited_files, find_file, read_text, source_edits
from flatout.schema.trial import Selection

OLD = "".join(f"line_{number} = {number}\n" for number in range(12))


def edit(name: str, **files: tuple[str, str]) -> SourceEdit:
    """Return an edit of files `train`, `helper` ... from one text to another."""
    pairs = {f"{stem}.py": pair for stem, pair in files.items()}
    diff = b"".join(unified_diff(old.encode(), new.encode(), path) for path, (old, new) in pairs.items())
    digests = {path: hashlib.sha256(old.encode()).hexdigest() for path, (old, _) in pairs.items()}
    return SourceEdit(name, diff.decode(), digests)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(OLD)
    (tmp_path / "helper.py").write_text("a = 1\n")
    return tmp_path


FIRST = edit("first", train=(OLD, OLD.replace("line_0 = 0", "line_0 = 'first'\nadded = 1")))
LATER = edit("later", train=(OLD, OLD.replace("line_9 = 9", "line_9 = 'later'")), helper=("a = 1\n", "a = 2\n"))


def test_an_edit_goes_through_a_selection_unchanged():
    assert SourceEdit.of(LATER.selection) == LATER
    assert LATER.selection.label == LATER.selection.key == "edit later"
    assert source_edits([Selection("tf32"), LATER.selection]) == [LATER]


def test_each_edit_is_served_on_top_of_those_before_it(folder):
    found = edited_files([FIRST.selection, Selection("tf32"), LATER.selection], [folder])
    train, helper = found.files
    assert not found.dropped
    assert train.text == OLD.replace("line_0 = 0", "line_0 = 'first'\nadded = 1").replace("= 9", "= 'later'")
    assert (train.edits, helper.edits) == (("first", "later"), ("later",))
    assert train.digest == hashlib.sha256(OLD.encode()).hexdigest()
    assert train.path == str((folder / "train.py").resolve())
    assert (folder / "train.py").read_text() == OLD


def test_files_are_looked_up_in_one_folder_after_the_other(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    assert len(edited_files([LATER.selection], [empty, folder]).files) == 2
    assert find_file("train.py", [empty]) is None
    assert find_file("../train.py", [folder / "sub"]) is None
    assert find_file(str(folder / "train.py"), [folder]) is None


def dropped(folder, *edits):
    return edited_files([each.selection for each in edits], [folder]).dropped


def test_an_edit_is_dropped_whole_where_one_of_its_files_has_changed(folder):
    (folder / "helper.py").write_text("a = 3\n")
    found = edited_files([FIRST.selection, LATER.selection], [folder])
    assert found.dropped == {"later": "helper.py has changed since the edit was made"}
    assert [file.edits for file in found.files] == [("first",)]


def test_two_edits_of_the_same_lines_are_not_served_together(folder):
    other = edit("other", train=(OLD, OLD.replace("line_1 = 1", "line_1 = 'other'")))
    said = "it changes lines of train.py that edit first has changed"
    assert dropped(folder, FIRST, other) == {"other": said}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "it is no unified diff"),
        ({"diff": FIRST.diff}, "its diff changes other files than those it is bound to"),
        ({"diff": FIRST.diff, "files": {"train.py": "0", "more.py": "0"}}, "its diff changes other files"),
        ({"diff": FIRST.diff, "files": {"train.py": "0"}}, "train.py has changed since the edit was made"),
        ({"diff": FIRST.diff.replace("train", "gone"), "files": {"gone.py": "0"}}, "there is no file gone.py"),
        ({"diff": 5, "files": 7}, "it is no unified diff"),
    ],
)
def test_settings_that_are_no_edit_are_dropped(folder, settings, said):
    (reason,) = edited_files([Selection("edited-source", {"edit": "e", **settings})], [folder]).dropped.values()
    assert reason.startswith(said)


def test_only_utf_8_is_read_and_its_mark_kept():
    assert read_text("\ufeffa = '\xe4'\r\n".encode()) == "\ufeffa = '\xe4'\r\n"
    with pytest.raises(ValueError, match="not in UTF-8"):
        read_text("# coding: latin-1\na = '\xe4'\n".encode("latin-1"))
    with pytest.raises(SyntaxError):
        read_text(b"a = '\xe4'\n")
