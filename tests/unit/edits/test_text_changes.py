"""New text for nodes of a file: everything else stays, to the byte, with line ends and letters of any kind."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.rewrite import Unplaced
from flatout.edits.text_changes import TextChanges, fresh_name, operand


def opened(folder, text):
    project = project_of(folder, train=text)
    return project, project.script, TextChanges(project.script)


def code(project, changes):
    return changes.done(project).script.code


def call(source):
    return next(node for node in ast.walk(source.tree) if isinstance(node, ast.Call))


def test_an_expression_is_replaced_where_it_stands_in_letters_of_any_kind(tmp_path):
    text = '# ä\nx = "äöü" + f(a , b)  # ß\n\ty = 1\n'.replace("\n\ty", "\ny").encode()
    project, source, changes = opened(tmp_path, text)
    assert changes.text(call(source)) == "f(a , b)"
    changes.replace(call(source), "g()")
    assert code(project, changes) == '# ä\nx = "äöü" + g()  # ß\ny = 1\n'.encode()


def test_lines_keep_their_ends_and_their_indentation(tmp_path):
    text = b"if x:\r\n\tf()\r\n\tg()\r\n"
    project, source, changes = opened(tmp_path, text)
    first, second = source.tree.body[0].body
    changes.before(first, "a = 1", "b = 2")
    changes.after(second, "c = 3")
    changes.indented(second, "with y:")
    assert code(project, changes) == b"if x:\r\n\ta = 1\r\n\tb = 2\r\n\tf()\r\n\twith y:\r\n\t\tg()\r\n\tc = 3\r\n"


def test_the_last_line_of_a_file_needs_no_end(tmp_path):
    project, source, changes = opened(tmp_path, b"f()\ng()")
    changes.after(source.tree.body[1], "h()")
    changes.remove(source.tree.body[0])
    assert code(project, changes) == b"g()\nh()"


def test_the_only_line_of_a_block_becomes_pass(tmp_path):
    project, source, changes = opened(tmp_path, "for x in y:\n    f()  # why\n")
    changes.remove(source.tree.body[0].body[0])
    assert code(project, changes) == b"for x in y:\n    pass  # why\n"


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("f(a,  # why\n  b)\n", lambda changes, source: changes.replace(call(source), "g()")),
        ("f(); g()\n", lambda changes, source: changes.after(source.tree.body[0], "h()")),
        ("f(); g()\n", lambda changes, source: changes.remove(source.tree.body[1])),
        ("f()\n", lambda changes, source: changes.replace(call(source), "g(")),
        ("f('''\n''')\n", lambda changes, source: changes.indented(source.tree.body[0], "with x:")),
    ],
)
def test_what_has_no_place_is_not_done_at_all(tmp_path, text, change):
    project, source, changes = opened(tmp_path, text)
    with pytest.raises(Unplaced):
        change(changes, source)
        changes.done(project)


def test_two_changes_of_one_place_are_none(tmp_path):
    project, source, changes = opened(tmp_path, "f(g(x))\n")
    changes.replace(call(source), "h()")
    changes.replace(call(source).args[0], "i()")
    with pytest.raises(Unplaced):
        changes.done(project)


def test_what_compiles_no_more_is_not_done(tmp_path):
    source = project_of(tmp_path, train="print([n for n in (f(x) for x in xs)])\n").script
    call = next(each for each in ast.walk(source.tree) if isinstance(each, ast.Call) and ast.unparse(each) == "f(x)")
    changes = TextChanges(source)
    changes.replace(call, "(lambda: (y := f(x)))()")  # Python forbids it there, though it parses
    with pytest.raises(Unplaced):
        changes.done(project_of(tmp_path, train=source.code))


def test_mixed_line_ends_are_left(tmp_path):
    project = project_of(tmp_path, train=b"f()\ng()\n")
    source = project.script
    vars(source)["code"] = b"f()\r\ng()\n"
    with pytest.raises(Unplaced):
        TextChanges(source)


def test_operands_get_brackets_where_they_need_them(tmp_path):
    _, source, changes = opened(tmp_path, "a.b(c[0])\nx + y\n")
    sum_of = source.tree.body[1].value
    assert (operand(changes, call(source)), operand(changes, sum_of)) == ("a.b(c[0])", "(x + y)")


def test_a_fresh_name_is_one_that_the_file_has_not(tmp_path):
    _, source, _ = opened(tmp_path, "import rows\nrows_2 = read(rows_3)\n")
    assert (fresh_name(source, "rows"), fresh_name(source, "columns")) == ("rows_4", "columns")
