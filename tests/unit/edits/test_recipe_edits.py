"""A recipe carried out on a project, fix by fix; a fix of several pieces is written whole or not at all."""

import pytest
from tests.unit.edits.scripts import SCRIPT, one, project_of, written

from flatout.edits import recipe_edits
from flatout.edits.recipe_edits import write_recipe_in
from flatout.edits.rewrite import Unplaced
from flatout.schema.trial import Selection


def test_each_fix_is_written_on_what_the_one_before_has_left(tmp_path):
    files, outcomes = written(
        tmp_path, {"loader-workers": {"workers": 2}, "worker-threads": {}, "cpu-threads": {"threads": 3}}, train=SCRIPT
    )
    assert b"batch_size=2, num_workers=2, worker_init_fn=flatout.use_one_thread)" in files["train"]
    assert b"torch.set_num_threads(3)" in files["train"]
    assert [(outcome.label, outcome.changed) for outcome in outcomes] == [
        ("loader-workers workers=2", 1),
        ("worker-threads", 1),
        ("cpu-threads threads=3", 1),
    ]


def test_an_unknown_fix_changes_nothing_and_is_said(tmp_path):
    text, outcome = one(tmp_path, "no-such-fix", SCRIPT)
    assert text == SCRIPT
    assert (outcome.changed, outcome.left) == (0, ("flatout does not know how to write it in the source",))


def test_settings_that_are_not_given_are_those_of_the_fix(tmp_path):
    text, outcome = one(tmp_path, "fused-optimizer", SCRIPT)
    assert "SGD(model.parameters(), lr=0.1, fused=True)" in text
    assert outcome.label == "fused-optimizer"


def test_where_a_piece_has_no_place_none_is_written(tmp_path):
    text, outcome = one(tmp_path, "pinned-copy", SCRIPT)  # copies nothing to a device
    assert text == SCRIPT
    assert outcome.changed == 0
    assert "no .to(device) or .cuda() of a batch" in outcome.left[-1]


@pytest.mark.parametrize("error", [Unplaced, RecursionError])
def test_code_without_a_place_is_left(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(recipe_edits, "switch_line", fail)
    text, outcome = one(tmp_path, "cpu-threads", SCRIPT, threads=2)
    assert text == SCRIPT
    assert outcome.left == ("the surrounding code does not show where to write it",)


def test_a_recipe_of_nothing_leaves_the_project(tmp_path):
    project = project_of(tmp_path, train=SCRIPT)
    assert write_recipe_in(project, []) == (project, ())
    assert write_recipe_in(project, [Selection("larger-batch", {"factor": 2})])[0].script.code == project.script.code
