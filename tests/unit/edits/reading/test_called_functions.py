"""The functions behind a line, by their names."""

import ast

from tests.unit.edits.scripts import project_of

from flatout.edits.reading.called_functions import called_at, functions_at, name_called

CODE = """\
def low(x):
    return far(x)
def far(x):
    return 1
def middle(x):
    return low(x)
class A:
    def high(self, x):
        return middle(x) + twice(x)
    def twice(self, x):
        return 2
class B:
    def twice(self, x):
        return 3
def main(a):
    return a.high(1)
"""


def test_what_a_statement_calls_and_what_that_calls(tmp_path):
    project = project_of(tmp_path, train=CODE)
    source = project.script
    statement = source.tree.body[-1].body[0]
    assert [each.name for _, each in called_at(project, statement)] == ["high", "middle"], "twice is a name of two"
    assert [each.name for _, each in functions_at(project, source, statement)] == ["main", "high", "middle"]


def test_the_last_name_of_what_is_called():
    calls = [node for node in ast.walk(ast.parse("a.b.c(d(1), e()())")) if isinstance(node, ast.Call)]
    assert sorted(map(name_called, calls)) == ["", "c", "d", "e"]
