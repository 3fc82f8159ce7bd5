"""A patch of a planted script applies where it was made, and nowhere else."""

import pytest
from benchmarks.strict_patch import PatchError, patched
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.edits.diff import unified_diff
from tests.examples import examples

TEXTS = st.lists(st.sampled_from([b"", b"a", b"b", b"-- a/t.py", b"@@ -1 +1 @@", b"c\r", b"\xe9"]), max_size=16).map(
    lambda lines: b"".join(line + b"\n" for line in lines)
)
OLD = b"".join(b"line %d\n" % number for number in range(20))
NEW = OLD.replace(b"line 4\n", b"four\n").replace(b"line 15\n", b"")
DIFF = unified_diff(OLD, NEW, "t.py")
HEAD, FIRST, SECOND = DIFF.split(b"@@ -")


@settings(max_examples=examples(100))
@given(before=TEXTS, after=TEXTS)
def test_a_patch_of_two_texts_makes_the_one_of_the_other(before, after):
    diff = unified_diff(before, after, "t.py")
    assert patched({"t.py": before, "u.py": b"same"}, diff) == {"t.py": after, "u.py": b"same"}


def test_a_patch_of_several_files_changes_each():
    diff = DIFF + unified_diff(b"a\n", b"b\n", "p/u.py")
    assert patched({"p/u.py": b"a\n", "t.py": OLD}, diff) == {"p/u.py": b"b\n", "t.py": NEW}


@pytest.mark.parametrize("old", [b"new\n" + OLD, OLD.replace(b"line 2\n", b"two\n"), NEW, b""])
def test_a_text_that_the_patch_was_not_made_from_is_refused(old):
    with pytest.raises(PatchError, match=r"the lines of t\.py from \d+ on"):
        patched({"t.py": old}, DIFF)


def test_a_change_outside_of_the_hunks_that_moves_no_line_is_let_through():
    assert b"nine\nfour" not in patched({"t.py": OLD.replace(b"line 9\n", b"nine\n")}, DIFF)["t.py"]


BROKEN = {
    "cut short": DIFF[: -len(b" line 18\n")],
    "a line too many": DIFF + b" line 19\n",
    "another count": DIFF.replace(b"@@ -2,7 +2,7 @@", b"@@ -2,7 +2,6 @@"),
    "another place": DIFF.replace(b"@@ -2,7 +2,7 @@", b"@@ -2,7 +3,7 @@"),
    "hunks in another order": b"@@ -".join([HEAD, SECOND, FIRST]),
    "no hunk": b"--- a/t.py\n+++ b/t.py\n",
    "a file that is not there": DIFF.replace(b"t.py", b"u.py"),
    "a file that is added": DIFF.replace(b"--- a/t.py", b"--- /dev/null"),
    "a file twice": DIFF + DIFF,
    "a line without a sign": DIFF.replace(b"\n line 3", b"\nline 3"),
    "words before it": b"diff --git a/t.py b/t.py\n" + DIFF,
}


@pytest.mark.parametrize("diff", BROKEN.values(), ids=BROKEN)
def test_what_is_no_patch_is_refused(diff):
    with pytest.raises(PatchError):
        patched({"t.py": OLD}, diff)
