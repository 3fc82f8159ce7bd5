"""Statements whose results the body of one branch alone reads."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.seldom_names import leaves, seldom_names


def seldom(folder, text):
    source = project_of(folder, train=f"def f(x):\n    for i in x:\n        {text.strip()}\n").script
    branch = next(node for node in ast.walk(source.tree) if isinstance(node, ast.If))
    block = source.parents[branch].body
    return [ast.unparse(each).split("\n")[0] for each in seldom_names(source, block, branch)]


IF = "\n        if i:\n            print(a)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = 1" + IF, ["a = 1"]),
        ("b = 1\n        a = b" + IF, ["b = 1", "a = b"]),
        ("b = 1\n        c = b\n        a = b" + IF, ["b = 1", "a = b"][1:]),
        ("a, (b, c) = i" + IF, ["a, (b, c) = i"]),
        ("with i:\n            b = 1\n            a = b" + IF, ["with i:"]),
        ("a = b\n        b = 1" + IF, ["a = b"]),
        ("a = 1" + IF + "\n        print(a)", []),
        ("print(a)\n        a = 1" + IF, []),
        ("a = 1" + IF + "\n    return a", []),
        ("a = a" + IF, []),
        ("a = 1\n        a += 1" + IF, []),
        ("a = 1" + IF + "\n        else:\n            print(a)", []),
        ("a = 1" + IF.replace("if i", "if a"), []),
        ("a.b = 1" + IF, []),
        ("x = 1" + IF.replace("print(a)", "print(x)"), []),
        ("a = 1" + IF + "\n    import a", []),
        ("a = 1" + IF + "\n    def a(): pass", []),
        ("a = 1" + IF.replace("print(a)", "print(lambda: a)"), []),
    ],
)
def test_who_reads_it(tmp_path, text, found):
    assert seldom(tmp_path, text) == found


def test_the_assignments_of_a_statement():
    for text, binds in (
        ("a = 1", [{"a"}]),
        ("a = b = 1", [{"a", "b"}]),
        ("a: int", []),
        ("a += 1", []),
        ("a, a = 1", []),
    ):
        assert [{*leaf.binds} for leaf in leaves(ast.parse(text).body[0])] == binds
    both = ast.parse("with x:\n    a = 1\n    with y:\n        b = 2\n").body[0]
    assert [{*leaf.binds} for leaf in leaves(both)] == [{"a"}, {"b"}]
    assert leaves(ast.parse("with x:\n    a = 1\n    print(a)\n").body[0]) == []
