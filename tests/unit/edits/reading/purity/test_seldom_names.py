"""Statements whose results nothing but they and the body of one branch use."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.seldom_names import argument_names, bound_names, is_comprehended, seldom_run


def seldom(folder, text, marked=0):
    """Return the first lines of what goes along with one of the statements before the first branch."""
    source = project_of(folder, train=f"def f(x):\n    for i in x:\n        {text.strip()}\n").script
    branch = next(node for node in ast.walk(source.tree) if isinstance(node, ast.If))
    block = source.parents[branch].body
    first, last = seldom_run(source, block, marked, marked, branch)
    return [ast.unparse(each).split("\n")[0] for each in block[first : last + 1]] if first >= 0 else []


IF = "\n        if i:\n            print(a)"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = 1" + IF, ["a = 1"]),
        ("b = 1\n        a = b" + IF, ["b = 1", "a = b"]),
        ("b = 1\n        c = 1\n        a = b" + IF, ["b = 1", "c = 1", "a = b"]),
        ("b = 1\n        x()\n        a = b" + IF, []),
        ("a, (b, c) = i" + IF, ["a, (b, c) = i"]),
        ("with i:\n            b = 1\n            a = b" + IF, ["with i:"]),
        ("a = 1\n        a += 1" + IF, ["a = 1", "a += 1"]),
        ("a = []\n        for b in x:\n            a.append(b)" + IF, ["a = []", "for b in x:"]),
        ("a = [b for b in x]\n        c = [b for b in a]" + IF, ["a = [b for b in x]", "c = [b for b in a]"]),
        ("a = [i for i in x]" + IF, ["a = [i for i in x]"]),
        ("for b in x:\n            a = b" + IF + "\n    for b in x:\n        b()", ["for b in x:"]),
        ("for b in x:\n            a = b" + IF + "\n    print(b)", []),
        ("for b in x:\n            a = b" + IF + "\n    for c in b:\n        c()", []),
        ("a = 1" + IF + "\n        print(a)", []),
        ("a = 1" + IF + "\n    return a", []),
        ("a = 1" + IF + "\n        else:\n            print(a)", []),
        ("a = 1" + IF.replace("if i", "if a"), []),
        ("a.b = 1" + IF, []),
        ("x = 1" + IF.replace("print(a)", "print(x)"), []),
        ("a = 1" + IF + "\n    import a", []),
        ("a = 1" + IF + "\n    def a(): pass", []),
        ("a = 1" + IF + "\n    def g(): return a", []),
        ("a = 1" + IF + "\n    def g(a): return a", ["a = 1"]),
        ("a = 1" + IF + "\n    def g(a=a): return a", []),
        ("a = 1" + IF + "\n    @h(a)\n    def g(a): return a", []),
        ("a = 1" + IF + "\n    try:\n        x()\n    except E as a:\n        pass", []),
        ("a = 1" + IF + "\n    match x:\n        case [a, *_]:\n            pass", []),
        ("a = 1" + IF.replace("print(a)", "print(lambda: a)"), []),
        ("a = 1" + IF.replace("print(a)", "b = (a for _ in x)"), []),
        ("a = 1" + IF.replace("print(a)", "b = sum(a for _ in x)"), ["a = 1"]),
    ],
)
def test_who_uses_it(tmp_path, text, found):
    assert seldom(tmp_path, text) == found


def test_names_of_the_module_are_its_own(tmp_path):
    def found(text):
        source = project_of(tmp_path, train=text).script
        block = source.tree.body
        branch = next(each for each in block if isinstance(each, ast.If))
        return seldom_run(source, block, 0, 0, branch)

    assert found("a = 1\nif x:\n    print(a)\n") == (0, 0)
    assert found("a = 1\nif x:\n    print(a)\ndef f():\n    a = 2\n    return a\n") == (0, 0)
    assert found("a = 1\nif x:\n    print(a)\ndef f():\n    return a\n") == (-1, -1)
    assert found("a = 1\nif x:\n    print(a)\ndef f():\n    global a\n    a = 2\n") == (-1, -1)


def test_arguments_of_a_function():
    function = ast.parse("def f(a, /, b, *c, d=lambda e: 1, **g):\n    pass\n").body[0]
    assert argument_names(function) == {"a", "b", "c", "d", "g"}
    assert argument_names(ast.parse("")) == set()


def test_names_of_comprehensions(tmp_path):
    source = project_of(
        tmp_path, train="a = [b for c in d for b in c if b]\nfor e in [e for e in e]:\n    f = 1\n"
    ).script
    named = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name)]
    assert {node.id for node in named if is_comprehended(source, node)} == {"b", "c", "e"}
    assert {node.id for node in named if not is_comprehended(source, node)} == {"a", "d", "e", "f"}
    assert sorted(bound_names(source, source.tree.body)) == ["a", "e", "f"]
