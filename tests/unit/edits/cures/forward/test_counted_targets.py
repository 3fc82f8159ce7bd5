"""Names that are read earlier than before, where rows are picked by their targets."""

import ast

import pytest
from tests.unit.edits.scripts import project_of
from tests.unit.report.specimens import finding

from flatout.edits.cures.forward.counted_targets import bound_later, written_between
from flatout.edits.finding_edit import EditPlace


def place_of(folder, *lines):
    project = project_of(folder, train="import torch\ndef f(h, t):\n" + "".join(f"    {line}\n" for line in lines))
    function = project.script.tree.body[-1]
    return EditPlace(project, project.script, function.body[0], finding()), function


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("t = g(t)", "t"),
        ("t += 1", "t"),
        ("t[0] = 1", "t"),
        ("t.clamp_(0)", "t"),
        ("for t in h: pass", "t"),
        ("u = t + 1", ""),
    ],
)
def test_names_that_are_bound_or_changed_behind_a_line(tmp_path, line, found):
    place, function = place_of(tmp_path, "out = head(h)", line)
    assert bound_later(place, function, [ast.Name("t", ast.Load())]) == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("g(t)", "g() may write"),
        ("u[0] = 1", "u[0] may write"),
        ("u += 1", "u += 1 may write"),
        ("u.zero_()", "u.zero_() may write"),
        ("a = torch.sum(t)", ""),
        ("a = t.float().mean()", ""),
    ],
)
def test_what_may_write_to_targets_meanwhile(tmp_path, line, found):
    place, function = place_of(tmp_path, "out = head(h)", line)
    said = written_between(place, function.body[1:])
    assert said.startswith(found) and bool(said) == bool(found)
