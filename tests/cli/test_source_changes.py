"""The cures of a report as changes of the script's source, where that is the one that was recorded."""

import os
import time
from dataclasses import replace

import pytest
from tests.unit.edits.scripts import SCRIPT
from tests.unit.report.specimens import finding, report

from flatout.cli import source_changes
from flatout.cli.source_changes import changes_of, recorded_loaders
from flatout.report.written_changes import NO_CHANGES
from flatout.schema.facts import Frame, LoaderFacts, SamplePrefix
from flatout.schema.recipe import Kept, Proof, Recipe
from flatout.schema.trial import Equivalence, Selection

PROOF = Proof(date="2025-01-02", flatout="0.1", python="3.11", torch="2.13", device="cpu")


def recipe(*fixes):
    kept = tuple(Kept(selection=each, equivalence=Equivalence.BITWISE) for each in fixes)
    return Recipe(script="train.py", fixes=kept, proof=PROOF)


@pytest.fixture
def shown(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    os.utime(path, (1, 1))
    one = finding(
        code="IN002", name="single-process-loading", location=Frame(str(path), 8, ""), fixes=("loader-workers",)
    )
    made = report(one)
    header = replace(made.run.header, working_folder=str(tmp_path), started_unix_s=time.time())
    looked_at = SamplePrefix(checked=4, deterministic=True)
    loader = LoaderFacts(is_training=True, created_at=Frame(str(path), 8, "<module>"), prefix=looked_at)
    return replace(made, run=replace(made.run, header=header, loaders=(loader,)))


def test_a_recipe_is_shown_as_a_diff_with_what_it_lacks(shown):
    fixes = (Selection("loader-workers", {"workers": 2}), Selection("larger-batch", {"factor": 2}))
    change = changes_of(replace(shown, recipe=recipe(*fixes))).recipe
    assert change.what == "The recipe in your source (flatout patch writes it), without larger-batch factor=2"
    added = [line for line in change.diff if line.startswith("+") and not line.startswith("+++")]
    assert len(added) == 1
    assert "num_workers=2" in added[0]
    assert change.diff[0] == "--- a/train.py"


def test_a_finding_has_the_fix_that_comes_first_with_its_first_settings(shown):
    (change,) = changes_of(shown).findings.values()
    assert change.what.startswith("loader-workers workers=")
    assert change.what.endswith(" in your source, not measured yet")


def test_without_a_recipe_none_is_shown(shown):
    assert changes_of(shown).recipe is None


@pytest.mark.parametrize("change", ["gone", "written to", "no Python", "too many files"])
def test_where_the_source_is_another_nothing_is_shown(shown, tmp_path, monkeypatch, change):
    path = tmp_path / "train.py"
    if change == "gone":
        path.unlink()
    elif change == "written to":
        path.touch()
        later = time.time() + 60
        os.utime(path, (later, later))
    elif change == "no Python":
        path.write_text("def f(:\n")
        os.utime(path, (1, 1))
    else:
        monkeypatch.setattr(source_changes, "_MOST_FILES", 1)
    assert changes_of(replace(shown, recipe=recipe(Selection("cpu-threads", {"threads": 1})))) == NO_CHANGES


def test_loaders_of_files_that_were_written_to_since_are_left_out(shown, tmp_path):
    assert len(recorded_loaders(shown.run)) == 1
    unknown = replace(shown.run, loaders=(LoaderFacts(is_training=True),))
    assert recorded_loaders(unknown) == ()
    later = time.time() + 60
    os.utime(tmp_path / "train.py", (later, later))
    assert recorded_loaders(shown.run) == ()
