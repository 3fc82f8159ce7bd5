"""What a turn does before the last use of its elements: nothing but numbers, or what may write to a tensor."""

import ast

import pytest
from tests.unit.edits.cures.elements.test_function_loops import loops_of

from flatout.edits.cures.elements.quiet_turns import is_quiet, until_last

SCRIPT = "def f(a, given, out):\n    own, n, total = [], 0, 0.0\n    for x in a:\n        {}\n"


def turn(folder, text):
    loops, loop = loops_of(folder, SCRIPT.format(text.replace("\n", "\n        ")))
    uses = {node for each in loop.body for node in ast.walk(each) if isinstance(node, ast.Name) and node.id == "x"}
    return loops, until_last(loop.body, uses)


def quiet(folder, text):
    loops, nodes = turn(folder, text)
    return is_quiet(loops, nodes, lambda _: False, lambda node: isinstance(node, ast.Name) and node.id == "x")


@pytest.mark.parametrize(
    "text",
    ["int(x)", "print(int(x))", "own.append(int(x))", "own.append((n, float(x)))", "n += 1\nint(x)",
     "total += n / 2\nint(x)", "if x == 2:\n    change(a)", "if n > 3 and not x == 2:\n    pass", "k = n + 1\nint(x)",
     "n = int(x)\nchange(a)", "for j in range(3):\n    n += int(x)", "given[0] = int(x)", "if x:\n    int(x)",
     "y = 3 if x else 4", "print(given, int(x))", "if x == 2 and given:\n    pass",
     "own.append([int(x) for j in range(3)])"],
)  # fmt: skip
def test_nothing_else_runs_first(tmp_path, text):
    assert quiet(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    ["change(a)\nint(x)", "out.append(int(x))", "given.turn\nint(x)", "given[0]\nint(x)", "given += 1\nint(x)",
     "if given:\n    int(x)", "if given == 2:\n    int(x)", "-given\nint(x)", "given + 1\nint(x)",
     "for j in given:\n    int(x)", "while given:\n    int(x)", "with given:\n    int(x)", "f'{given}'\nint(x)",
     "own[0] = 3\nint(x)", "own[0] += 3\nint(x)", "yield\nint(x)", "y, z = given\nint(x)", "del given\nint(x)",
     "range(given)\nint(x)", "int(given)\nint(x)", "given and x == 2\nint(x)", "import given\nint(x)",
     "match given:\n    case int():\n        int(x)", "for j in range(3):\n    int(x)\n    change(a)",
     "assert given\nint(x)", "[*given]\nint(x)", "(int(x), change(a), int(x))", "y = 3 if given else int(x)",
     "if given and x == 2:\n    pass", "if n < given < int(x):\n    pass", "print(*given, int(x))"],
)  # fmt: skip
def test_something_else_may_run_first(tmp_path, text):
    assert not quiet(tmp_path, text)


def test_what_follows_the_last_use_does_not_count(tmp_path):
    _, nodes = turn(tmp_path, "n = given(int(x), 3)")
    assert [node.id for node in nodes if isinstance(node, ast.Name)] == ["given", "int", "x"]
    _, nodes = turn(tmp_path, "n += 1")
    assert nodes == []
