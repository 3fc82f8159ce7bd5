"""Changes by their places: whatever they do not name stays as it was, byte for byte."""

import ast

import libcst as cst
import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.source_file import span
from flatout.edits.rewrite import SourceChanges, Unplaced, insert_line, parse_line, rewritten

CODE = """\
# licence
import os  # why

for x in make(1), make(2):
    use( x )
async def run():
    pass
"""


@pytest.fixture
def source(tmp_path):
    return project_of(tmp_path, train=CODE).script


def changed(source, **changes):
    return rewritten(source, SourceChanges(**changes)).code.decode()


def call(source, text):
    return next(n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and ast.unparse(n) == text)


def named(name):
    return lambda node: node.with_changes(func=cst.Name(name))


def test_one_call_of_several_on_a_line_is_changed(source):
    place = span(source, call(source, "make(2)"))
    assert changed(source, calls={place: named("other")}) == CODE.replace("make(2)", "other(2)")


def test_a_line_becomes_several_or_none(source):
    def doubled(statement, module):
        return [statement, parse_line("more()", module)]

    assert changed(source, lines={5: doubled}) == CODE.replace("    use( x )\n", "    use( x )\n    more()\n")
    assert "import" not in changed(source, lines={2: lambda *_: []})


def test_a_loop_and_a_function_are_changed_where_they_begin(source):
    def renamed(node, module):
        return node.with_changes(name=cst.Name("go"))

    assert changed(source, blocks={6: renamed}) == CODE.replace("def run", "def go")
    assert changed(source, blocks={4: lambda node, _: node.with_changes(target=cst.Name("y"))}) == CODE.replace(
        "for x", "for y"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"calls": {(1, 0, 1, 5): named("other")}},
        {"lines": {4: lambda statement, _: [statement]}},  # a loop is no simple statement
        {"blocks": {2: lambda node, _: node}},
    ],
)
def test_a_change_without_a_place_changes_nothing(source, changes):
    with pytest.raises(Unplaced):
        changed(source, **changes)


def test_a_call_that_its_change_leaves_has_no_place(source):
    with pytest.raises(Unplaced):
        changed(source, calls={span(source, call(source, "make(2)")): lambda node: node})


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        (2, False, CODE.replace("import os", "import sys\nimport os")),
        (2, True, CODE.replace("# why\n", "# why\n\nimport sys\n")),
        (4, True, CODE.replace("use( x )\n", "use( x )\nimport sys\n")),
    ],
)
def test_a_line_is_put_beside_a_statement(source, line, after, expected):
    assert insert_line(source, "import sys", line, after=after).code.decode() == expected


def test_comments_above_a_statement_stay_above(source):
    code = insert_line(source, "import sys", 4, after=False).code.decode()
    assert code == CODE.replace("for x", "import sys\nfor x")
    with pytest.raises(Unplaced):
        insert_line(source, "import sys", 3, after=False)


def test_line_ends_and_indentation_are_those_of_the_file(tmp_path):
    source = project_of(tmp_path, train=CODE.replace("\n", "\r\n").encode()).script
    assert b"# why\r\n\r\nimport sys\r\n" in insert_line(source, "import sys", 2, after=True).code


def test_an_empty_file_takes_a_line(tmp_path):
    source = project_of(tmp_path, train="").script
    assert insert_line(source, "import sys", 0, after=True).code.strip() == b"import sys"
