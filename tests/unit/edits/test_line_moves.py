"""Lines found again in changed code."""

from dataclasses import replace

from flatout.edits.line_moves import line_now, moved_loaders
from flatout.edits.reading.project import read_project
from flatout.schema.facts import Frame, LoaderFacts


def test_a_line_is_found_below_added_lines_and_lost_where_it_was_changed():
    before, now = ["a", "b", "c", "d"], ["new", "a", "B", "c", "d"]
    assert [line_now(before, now, line) for line in (1, 2, 3, 4)] == [2, 0, 4, 5]


def test_recorded_loaders_move_with_their_lines(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("a = 1\nb = 2\nc = 3\n")
    before = read_project(path, tmp_path, tmp_path)
    now = before.with_code(before.script.path, b"new = 0\na = 1\nb = 5\nc = 3\n")
    first, second, third, elsewhere = (
        LoaderFacts(name="x", created_at=Frame(file, line, "f"))
        for file, line in ((str(path), 1), (str(path), 2), (str(path), 3), ("/other.py", 2))
    )
    unknown = replace(first, created_at=None)
    found = moved_loaders([first, second, third, elsewhere, unknown], before, now)
    assert [each.created_at and each.created_at.line for each in found] == [2, 4, 2, None]
