"""Diffs as git and diff write them, read and applied."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from flatout.edits.diff import unified_diff
from flatout.fixes.source.unified_patch import PatchRefused, parse_patch, patched

LINES = st.lists(
    st.sampled_from(["", "a", "b", "-- a/t.py", "++ b/t.py", "@@ -1 +1 @@", "c\r", "\xe9", "\x0c"]), max_size=16
)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))
OLD = "".join(f"line {number}\n" for number in range(20))
NEW = OLD.replace("line 4\n", "four\n").replace("line 15\n", "")


def diff_of(old: str, new: str, name: str = "t.py") -> str:
    return unified_diff(old.encode(), new.encode(), name).decode()


def applied(diff: str, text: str) -> str:
    (patch,) = parse_patch(diff)
    return patched(patch, text)


@settings(max_examples=examples(200))
@given(before=TEXTS, after=TEXTS)
def test_a_diff_of_two_texts_makes_the_one_of_the_other(before, after):
    diff = diff_of(before, after)
    if diff:
        (patch,) = parse_patch(diff)
        assert (patch.old, patch.new) == ("a/t.py", "b/t.py")
        assert patched(patch, before) == after


def test_git_s_and_diff_s_own_diffs_are_read(tmp_path):
    for name, text in (("old.py", OLD), ("new.py", NEW)):
        (tmp_path / name).write_text(text)
    for command in (["git", "diff", "--no-index"], ["diff", "-u"], ["git", "diff", "--no-index", "--no-prefix"]):
        diff = subprocess.run([*command, "old.py", "new.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
        (patch,) = parse_patch(f"From: somebody\nSubject: faster\n\n{diff.stdout}\n-- \n2.40\n")
        assert (patch.old[-6:], patch.new[-6:]) == ("old.py", "new.py")
        assert patched(patch, OLD) == NEW


def test_a_hunk_is_found_where_lines_were_added_above_it():
    assert applied(diff_of(OLD, NEW), "added\n" * 3 + OLD) == "added\n" * 3 + NEW


def test_a_blank_line_whose_blank_an_editor_has_stripped_is_a_blank_line():
    assert applied("--- a/t.py\n+++ b/t.py\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n", "a\n\nb\n") == "a\n\nc\n"


def test_quoted_names_are_read_as_git_writes_them():
    name = 'tr\xe4in "x".py'
    assert parse_patch(diff_of("a\n", "b\n", name))[0].new == f"b/{name}"
    assert (
        parse_patch('--- "a/tr\\303\\244in.py"\n+++ "b/tr\\303\\244in.py"\n@@ -1 +1 @@\n-a\n+b\n')[0].new
        == "b/träin.py"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OLD.replace("line 2\n", "two\n"), "hunk 1 (line 2) shows lines that are not there"),
        (OLD.replace("line 17\n", "x\n"), "hunk 2 (line 13) shows lines that are not there"),
        (NEW, "hunk 1 (line 2) shows lines that are not there"),
        ("x\n" + OLD + OLD, "hunk 1 (line 2) shows lines that are not there"),  # at two places
        ("", "hunk 1 (line 2) shows lines that are not there"),
    ],
)
def test_a_text_that_the_diff_does_not_fit_is_refused(text, said):
    with pytest.raises(PatchRefused) as caught:
        applied(diff_of(OLD, NEW), text)
    assert str(caught.value) == said


DIFF = diff_of(OLD, NEW)


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("", "no unified diff"),
        ("print('a script')\n", "no unified diff"),
        (DIFF.partition("@@")[0], "changes nothing in it"),
        (DIFF.partition("+++ b/t.py\n")[2], "no file was named before"),
        (DIFF.replace("--- a/t.py", "--- /dev/null"), "adds the file b/t.py"),
        (DIFF.replace("+++ b/t.py", "+++ /dev/null"), "deletes the file a/t.py"),
        (f"rename from a.py\nrename to b.py\n{DIFF}", "renames a file"),
        (f"copy from a.py\n{DIFF}", "copies a file"),
        ("Binary files a/x.png and b/x.png differ\n", "a binary file"),
        (DIFF.replace("-2,7 +2,7", "-2,7 +2,6"), "other numbers of lines than its head says"),
        (DIFF[: -len(" line 17\n line 18\n")], "other numbers of lines than its head says"),
        ("@@@ -1,2 -1,2 +1,3 @@@\n", "diff of a merge"),
    ],
)
def test_what_is_no_diff_or_does_something_else_is_refused(diff, said):
    with pytest.raises(PatchRefused) as caught:
        parse_patch(diff)
    assert said in str(caught.value)
