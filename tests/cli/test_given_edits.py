"""Diffs on the command line of `flatout tune`, and edits that cure findings."""

import os
import time
from dataclasses import replace

import pytest
from tests.unit.report.specimens import finding, ordinary

from flatout.cli.given_edits import named_alone, proposed_edits, read_edits
from flatout.cli.main import run
from flatout.edits.diff import unified_diff
from flatout.engine.process.target import parse_target
from flatout.errors import UsageError
from flatout.schema.facts import Frame

OLD = "import gc\nfor x in []:\n    print(x)\n    gc.collect()\n"
DIFF = unified_diff(OLD.encode(), OLD.replace("    gc.collect()\n", "").encode(), "train.py")


@pytest.fixture
def change(project):
    (project / "train.py").write_text(OLD)
    (project / "change.diff").write_bytes(DIFF)
    return project / "change.diff"


def test_edits_are_handed_to_the_engine_and_fixes_with_them(search, change):
    words = ["--edit", "change.diff", "--also", "larger-batch", "--equal", "rounding", "train.py"]
    assert run(["tune", *words]) == 0
    limits = search.calls[0]["limits"]
    assert [each.label for each in limits.edits] == ["edit change.diff"]
    assert limits.also == frozenset({"larger-batch"})
    assert limits.only == frozenset()


def test_only_an_edit_leaves_out_all_fixes(search, change):
    assert run(["tune", "--only", "change.diff", "train.py"]) == 0
    assert search.calls[0]["limits"].only == frozenset({"edited-source"})
    assert len(search.calls[0]["limits"].edits) == 1


def test_what_names_a_diff_is_told_from_what_names_a_fix(change):
    assert named_alone(["tf32", "change.diff", "gone.patch"]) == (("tf32",), ("change.diff", "gone.patch"))


def test_two_files_of_one_name_are_told_apart_and_one_file_twice_is_one_edit(change, project):
    (project / "sub").mkdir()
    (project / "sub" / "change.diff").write_bytes(DIFF)
    target = parse_target(["train.py"])
    found = read_edits(["change.diff", "sub/change.diff", "change.diff"], target)
    assert [each.label for each in found] == ["edit change.diff", "edit sub/change.diff"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "There is no file change.diff."),
        (b"\xff\xfe", "change.diff is not a diff: it is not text in UTF-8"),
        (DIFF.replace(b"print(x)", b"print(y)"), "in train.py hunk 1 (line 1) shows lines that are not there"),
    ],
)
def test_a_diff_that_cannot_be_tried_ends_the_command_before_anything_runs(search, change, content, said, capsys):
    change.unlink() if content is None else change.write_bytes(content)
    assert run(["tune", "--edit", "change.diff", "train.py"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert search.calls == []


def report(project, *findings):
    path = project / "train.py"
    os.utime(path, (time.time() - 100,) * 2)
    made = ordinary()
    header = replace(made.run.header, script="train.py", working_folder=str(project), started_unix_s=time.time())
    return replace(made, run=replace(made.run, header=header), findings=findings)


def test_a_finding_whose_line_can_be_changed_is_an_edit(change, project):
    found = finding(code="HO004", location=Frame(str(project / "train.py"), 4, "f"), max_speedup=3.0)
    other = finding(code="IN001", location=None)
    (edit,) = proposed_edits(report(project, other, found), parse_target(["train.py"]), frozenset())
    assert edit.selection.label == "edit HO004 gc.collect left out (train.py:4)"
    assert edit.selection.settings["diff"] == DIFF.decode()
    assert edit.finding == found
    assert (project / "train.py").read_text() == OLD


def test_there_is_none_where_the_file_was_written_to_since_or_other_rules_were_named(change, project):
    found = finding(code="HO004", location=Frame(str(project / "train.py"), 4, "f"), max_speedup=3.0)
    made, target = report(project, found), parse_target(["train.py"])
    assert proposed_edits(made, target, frozenset({"tf32"})) == []
    assert len(proposed_edits(made, target, frozenset({"HO004"}))) == 1
    os.utime(project / "train.py", (time.time() + 100,) * 2)
    assert proposed_edits(made, target, frozenset()) == []


def test_anomaly_detection_stays_on_unless_it_is_asked_for(change, project):
    (project / "train.py").write_text("import torch\ntorch.autograd.set_detect_anomaly(True)\n")
    found = finding(code="CO003", location=Frame(str(project / "train.py"), 2, "f"), max_speedup=3.0)
    assert proposed_edits(report(project, found), parse_target(["train.py"]), frozenset()) == []


def test_an_error_has_its_three_parts(change):
    change.write_text("nothing")
    with pytest.raises(UsageError) as caught:
        read_edits(["change.diff"], parse_target(["train.py"]))
    assert caught.value.fact and caught.value.meaning and caught.value.advice
