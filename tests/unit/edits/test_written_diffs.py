"""Edits of a recipe in the user's source: written whole or not at all, found there, left out."""

import hashlib

import pytest

from flatout.edits.diff import unified_diff
from flatout.edits.reading.project import read_project
from flatout.edits.recipe_edits import write_recipe_in
from flatout.edits.written_diffs import with_edited_files, write_edit_in
from flatout.fixes.source.source_edit import SourceEdit
from flatout.schema.trial import Selection

OLD = """\
import gc
import torch
from torch.utils.data import DataLoader
loader = DataLoader(data, batch_size=8)
for x, y in loader:
    loss = model(x).sum()
    loss.backward()
    gc.collect()
    optimizer.step()
"""
NEW = OLD.replace("    gc.collect()\n", "").replace("import torch\n", "import torch\nimport numpy\n")


def edit(**files):
    texts = {f"{stem}.py": pair for stem, pair in files.items()}
    diff = "".join(unified_diff(a.encode(), b.encode(), name).decode() for name, (a, b) in texts.items())
    return SourceEdit("e", diff, {name: hashlib.sha256(a.encode()).hexdigest() for name, (a, _) in texts.items()})


EDIT = edit(train=(OLD, NEW))


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.py").write_text(OLD)
    (tmp_path / "lazy.py").write_text("a = 1\n")
    return read_project(tmp_path / "train.py", tmp_path, tmp_path)


def test_an_edit_is_written_and_found_again(project):
    done = write_edit_in(project, EDIT)
    assert done.project.script.code.decode() == NEW
    assert (done.changed, done.there, done.left) == (1, 0, ())
    again = write_edit_in(done.project, EDIT)
    assert (again.changed, again.there, again.project) == (0, 1, done.project)


def test_it_is_written_where_the_file_has_changed_elsewhere_and_left_where_it_changed_there(project):
    path = project.script.path
    elsewhere = project.with_code(path, b"'''Doc.'''\n" + OLD.encode())
    assert write_edit_in(elsewhere, EDIT).project.script.code.decode() == "'''Doc.'''\n" + NEW
    there = write_edit_in(project.with_code(path, OLD.replace("import torch", "import os").encode()), EDIT)
    assert there.changed == 0
    assert there.left == (
        "hunk 1 (line 1) shows lines that are not there: the file has changed since the edit was made",
    )


def test_files_that_the_script_does_not_import_in_sight_are_read_too(project, tmp_path):
    both = edit(train=(OLD, NEW), lazy=("a = 1\n", "a = 2\n"))
    missing = write_edit_in(project, both)
    assert missing.project == project and missing.left == ("there is no file lazy.py that flatout reads",)
    wider = with_edited_files(project, [both.selection], [tmp_path])
    assert [each.shown for each in wider.sources] == ["train.py", "lazy.py"]
    assert [each.code for each in write_edit_in(wider, both).project.sources] == [NEW.encode(), b"a = 2\n"]


def test_what_is_no_edit_is_left_out(project):
    assert write_edit_in(project, SourceEdit("e", "nothing", {})).left[0].startswith("it is no unified diff")


def test_fixes_are_written_into_what_the_edits_leave(project):
    selections = [Selection("loader-workers", {"workers": 2}), EDIT.selection]
    after, outcomes = write_recipe_in(project, selections)
    assert [each.label for each in outcomes] == ["edit e", "loader-workers workers=2"]
    assert "gc.collect" not in after.script.code.decode()
    assert "import numpy" in after.script.code.decode()
