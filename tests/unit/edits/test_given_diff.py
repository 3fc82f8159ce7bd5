"""A diff that somebody wrote, made into an edit; and what is said of one that is none."""

import subprocess

import pytest

from flatout.edits.diff import unified_diff
from flatout.edits.given_diff import given_edit
from flatout.errors import UsageError
from flatout.fixes.source.source_edit import edited_files

OLD = "".join(f"line_{number} = {number}\n" for number in range(12))
NEW = OLD.replace("line_4 = 4", "four = 4")


@pytest.fixture
def folder(tmp_path):
    for name in ("train.py", "package/helper.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(OLD)
    (tmp_path / "setup.yaml").write_text("a: 1\n")
    return tmp_path


def diff(name="train.py", old=OLD, new=NEW):
    return unified_diff(old.encode(), new.encode(), name).decode()


def files(edit, *folders):
    found = edited_files([edit.selection], folders)
    assert not found.dropped
    return {file.path.rpartition("/")[2]: file.text for file in found.files}


@pytest.mark.parametrize(
    "header",
    [("a/train.py", "b/train.py"), ("train.py", "train.py"), ("train.py\t2026-01-01", "train.py\t2026-01-02"),
     ("train.py.orig", "train.py"), ("train.py", "train_fast.py"), ("i/train.py", "w/train.py"), ("./train.py",) * 2],
)  # fmt: skip
def test_names_are_understood_as_git_and_diff_write_them(folder, header):
    text = diff().replace("--- a/train.py", f"--- {header[0]}").replace("+++ b/train.py", f"+++ {header[1]}")
    edit = given_edit(text, "change.diff", [folder])
    assert list(edit.files) == ["train.py"]
    assert files(edit, folder) == {"train.py": NEW}
    assert edit.selection.label == "edit change.diff"


def test_names_are_those_of_git_s_top_though_flatout_was_started_below_it(folder):
    below = folder / "package"
    edit = given_edit(diff("package/helper.py"), "change.diff", [below])
    assert files(edit, below) == {"helper.py": NEW}


def test_a_script_elsewhere_is_found_beside_itself(folder, tmp_path_factory):
    here = tmp_path_factory.mktemp("here")
    assert files(given_edit(diff(), "change.diff", [here, folder]), here, folder) == {"train.py": NEW}


def test_absolute_names_are_made_relative(folder):
    text = diff().replace("a/train.py", f"{folder}/train.py").replace("b/train.py", f"{folder}/train.py")
    assert list(given_edit(text, "change.diff", [folder]).files) == ["train.py"]


def test_several_files_are_one_edit_and_what_a_mail_adds_is_passed_over(folder):
    text = f"From: me\n\n{diff()}diff --git a/x b/x\n{diff('package/helper.py')}-- \n2.0\n"
    assert files(given_edit(text, "change.diff", [folder]), folder) == {"train.py": NEW, "helper.py": NEW}


def test_what_git_itself_writes_is_read(folder):
    def git(*words):
        command = ["git", "-c", "user.name=x", "-c", "user.email=x", *words]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout

    git("init", "-q"), git("add", "."), git("commit", "-qm", "one")
    (folder / "train.py").write_text(NEW)
    (folder / "train.py").chmod(0o755)
    text = git("diff")
    git("checkout", "-q", ".")
    assert "old mode" in text
    assert files(given_edit(text, "change.diff", [folder]), folder) == {"train.py": NEW}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print(1)\n", "change.diff cannot be tried: it is no unified diff"),
        (diff(old="", new="a = 1\n", name="new.py").replace("a/new.py", "/dev/null"), "it adds the file b/new.py"),
        (diff(new="").replace("b/train.py", "/dev/null"), "it deletes the file a/train.py"),
        (diff("gone.py"), "changes b/gone.py, and there is no such file below"),
        (diff("../train.py"), "there is no such file below"),
        (diff(old=NEW, new=OLD), "does not fit: in train.py hunk 1 (line 2) shows lines that are not there"),
        (diff(new=OLD.replace("4 = 4", "4 = (")), "into something that is not Python: line 5: "),
        (diff("setup.yaml", "a: 1\n", "a: 2\n"), "setup.yaml is not a Python file"),
        (diff() + diff(), "it changes train.py twice"),
    ],
)
def test_what_cannot_be_tried_is_told_with_file_and_hunk(folder, text, said):
    with pytest.raises(UsageError) as caught:
        given_edit(text, "change.diff", [folder])
    assert said in str(caught.value)


def test_a_file_in_another_encoding_is_refused(folder):
    (folder / "train.py").write_bytes(b"# coding: latin-1\n" + OLD.encode())
    with pytest.raises(UsageError, match="not text in UTF-8"):
        given_edit(diff(), "change.diff", [folder])
