"""Names in the loops of a function: where they have a value, and where they keep it."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.cures.elements.function_loops import LoopsOf, calls_builtin


def loops_of(folder, text):
    """Read the first function of a text; the loop is its first `for`."""
    project = project_of(folder, train=text)
    source = project.script
    scope = next(node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef))
    loop = next(node for node in ast.walk(scope) if isinstance(node, ast.For))
    return LoopsOf(project, source, scope), loop


@pytest.mark.parametrize(
    ("before", "turn", "keeps"),
    [
        ("a = 3", "pass", True),
        ("a, b = b, 3", "pass", True),
        ("pass", "pass", False),  # bound nowhere
        ("if b: a = 3", "pass", False),
        ("a = 3", "a = 4", False),
        ("a = 3", "for a in b: pass", False),
        ("a = 3", "del a", False),
        ("a = 3\n    def up():\n        nonlocal a\n        a = 4", "up()", False),
        ("global a\n    a = 3", "pass", False),
        ("a = 3", "match b:\n            case [a]: pass", False),
        ("a = 3", "try: pass\n        except OSError as a: pass", False),
        ("a = 3", "print(lambda a: a)", False),
    ],
)
def test_where_a_name_keeps_its_value(tmp_path, before, turn, keeps):
    loops, loop = loops_of(tmp_path, f"def f(b):\n    {before}\n    for i in b:\n        {turn}\n    a = 5\n")
    assert loops.keeps("a", loop) == keeps
    assert loops.keeps("b", loop)


def test_the_outermost_loop_and_what_runs_later(tmp_path):
    text = """
def f(a):
    for i in a:
        while i:
            x = i, [y for y in i]
    z = [j for j in a], list(k for k in a), (m for m in a), (lambda: [n for n in a]), f"{[o for o in a]}"
"""
    loops, loop = loops_of(tmp_path, text)
    last = loops.scope.body[-1]
    targets = {node.target.id: node.target for node in ast.walk(loops.scope) if isinstance(node, ast.comprehension)}
    assert {name: loops.outermost(node) for name, node in targets.items()} == {
        "y": loop, "j": last, "k": last, "m": None, "n": None, "o": None,
    }  # fmt: skip
    assert loops.outermost(loop.body[0].test) is loop
    assert loops.outermost(loop.iter) is None


def test_functions_of_python_s_that_the_file_replaces(tmp_path):
    text = "def f(a):\n    for i in a:\n        int(i), len(i)\n    try: pass\n    except OSError as len: pass\n"
    loops, loop = loops_of(tmp_path, text)
    first, second = loop.body[0].value.elts
    assert calls_builtin(loops.source, first, ("int", "len"))
    assert not calls_builtin(loops.source, second, ("int", "len"))
    assert not calls_builtin(loops.source, first, ("float",))
