"""Values that a function makes itself, by how much of them is new."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.effects.fresh_values import DEEP, HELD, NUMBERS, OWN, FreshValues, root_name

HEAD = "import collections, copy\nimport numpy as np\nimport torch\n"


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("a = 0", NUMBERS),
        ("a = 0\n    a += x", NUMBERS),
        ("a = torch.zeros(3)", NUMBERS),
        ("a = x.sum()", NUMBERS),
        ("a = np.array(x)", NUMBERS),
        ("a = x == 1", NUMBERS),
        ("a = x + 1", NUMBERS),
        ("for a in range(3):\n        pass", NUMBERS),
        ("a = []", DEEP),
        ("a = [0] * x", DEEP),
        ("a = [[0, 1] for _ in x]", DEEP),
        ("a = x.tolist()", DEEP),
        ("a = collections.Counter(x)", DEEP),
        ("a = list(range(3))\n    a.append(4)", DEEP),
        ("a = [1]\n    b = [2]\n    a, b = b, a", DEEP),
        ("a = copy.deepcopy(x)", DEEP),
        ("a = []\n    a.append(x)", OWN),
        ("a = {}\n    a[1] = x", OWN),
        ("a = [x]", OWN),
        ("a = [1]\n    b = a\n    b.append(x)", OWN),
        ("a = list(x)", OWN),
        ("a = zip(x, x)", OWN),
        ("a = [1, 2] + x", OWN),
        ("a = x * 2", OWN),
        ("a = x", HELD),
        ("a = +x", HELD),
        ("a = x.view(-1)", HELD),
        ("a = x[0]", HELD),
        ("a = max(x)", HELD),
        ("a = mine(x)", HELD),
        ("a = x.sum\n    a = a", HELD),
        ("a = 0\n    a = x", HELD),
        ("a = np.array(x, copy=False)", HELD),
        ("a = torch.exp(x, out=x)", HELD),
        ("a = x.mine()", HELD),
        ("for a in x:\n        pass", HELD),
        ("global a\n    a = []", HELD),
        ("with x as a:\n        pass", HELD),
        ("a = []\n    [a for a in x]", HELD),
    ],
)
def test_what_is_new_in_a_variable(tmp_path, text, rank):
    project = project_of(tmp_path, train=f"{HEAD}def f(x):\n    {text}\n    return a\n")
    source = project.script
    function = source.tree.body[-1]
    assert FreshValues(source, function, {"mine"}).rank(function.body[-1].value) == rank


def test_an_argument_is_held_by_whoever_gave_it(tmp_path):
    source = project_of(tmp_path, train="def f(a):\n    a = []\n    return a\n").script
    function = source.tree.body[0]
    assert FreshValues(source, function).rank(function.body[-1].value) == HELD


def test_items_belong_to_their_variable():
    shown = {"a[0][1:]": "a", "a": "a", "a.b[0]": "", "f()[0]": ""}
    assert {text: root_name(ast.parse(text, mode="eval").body) for text in shown} == shown
