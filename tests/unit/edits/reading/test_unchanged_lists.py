"""Lists that stay while a loop runs: what they are, who holds them, and whether they are there before it."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.unchanged_lists import ListUse


def use_of(folder, text, **others):
    """Return what is known of the container of the only `in` in a loop, and the loop."""
    project = project_of(folder, train=text, **others)
    source = project.script
    (test,) = (node for node in ast.walk(source.tree) if isinstance(node, ast.Compare))
    loop = next(each for each in source.above(test) if isinstance(each, ast.For))
    return ListUse(project, source, test.comparators[0]), loop


def function(first, loop="    for y in ys:\n        f(y in x)\n", arguments="ys"):
    return f"def g({arguments}):\n    {first}\n{loop}"


@pytest.mark.parametrize(
    ("first", "is_list", "is_worth_it"),
    [
        ("x = [y * 2 for y in ys]", True, True), ("x = sorted(ys)", True, True), ("x = ys.split()", True, True),
        ("x = [0] * 9 + ys", True, True), ("x = [1, 2]", True, False), ("x = {1, 2}", False, False),
        ("x = dict(ys)", False, False), ("x = 'abc'", False, False), ("x = None", False, True),
        ("x = ys.tolist()", False, True), ("x, z = ys", False, True), ("x = ys", False, True),
        ("x = []; x = ys", False, True),
    ],
)  # fmt: skip
def test_what_it_is(tmp_path, first, is_list, is_worth_it):
    use, _ = use_of(tmp_path, function(first))
    assert (use.is_list, use.is_worth_it) == (is_list, is_worth_it)


def test_an_argument_is_not_known_and_an_inner_variable_is_another_one(tmp_path):
    use, _ = use_of(tmp_path, function("pass", arguments="x, ys"))
    assert use.values == [None]
    use, _ = use_of(tmp_path, function("x = list(ys); z = [x for x in ys]; w = lambda x: x.append(1)"))
    assert use.is_list and len(use.values) == 1


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("x = list(ys)", ""),
        ("x = list(ys); x.append(1); x[0] = 3", ""),
        ("x = list(ys); print(len(x), x[0], x + [1], *x)", ""),
        ("x = list(ys); keep(x)", "x may be changed by f()"),
        ("x = list(ys); z = [x]", "x may be changed by f()"),
        ("x = list(ys); z = lambda: x.append(1)", "x may be changed by f()"),
        ("x = ys", "x may be changed by f()"),
        ("z = 1", "where x comes from is not seen"),
        ("x: list", "x may not be there before the loop"),
        ("if ys: x = list(ys)", "x may not be there before the loop"),
    ],
)
def test_whether_it_stays(tmp_path, first, reason):
    use, loop = use_of(tmp_path, function(first))
    assert use.changed_in([loop], loop) == reason


def test_a_list_of_the_module_is_seen_by_other_files(tmp_path):
    text = "x = list(range(9))\ndef g(ys):\n    for y in ys:\n        f(y in x)\n"
    use, loop = use_of(tmp_path, text)
    assert use.changed_in([loop], loop) == ""
    use, loop = use_of(tmp_path, "import other\n" + text, other="from train import x\nx.append(1)\n")
    assert use.changed_in([loop], loop) == "x may be changed by f()"
    use, loop = use_of(tmp_path, text.replace("x = list(range(9))\n", "") + "x = list(range(9))\n")
    assert use.changed_in([loop], loop) == "x may not be there before the loop"
    use, loop = use_of(tmp_path, text + "def h():\n    x.clear()\n")
    assert use.changed_in([loop], loop) == "x may be changed by f()"


CLASS = """\
class A:
    def __init__(self, ys):
        self.x = list(ys)
    def g(self, ys):
        for y in ys:
            f(y in self.x)
"""


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("", ""),
        ("class B(A):\n    def __init__(self):\n        self.x = [1]\n", ""),
        ("    def h(self):\n        self.x = []\n", "self.x may be changed by f()"),
        ("    def h(self):\n        return self.x\n", "self.x may be changed by f()"),
        ("def h(a):\n    a.x.append(1)\n", "self.x may be changed by f()"),
        ("def h(a):\n    setattr(a, 'x', 1)\n", "self.x may be changed by f()"),
        ("class B(A):\n    def x(self):\n        return 1\n", "self.x is what a function gives"),
        ("class B(A):\n    x = property(f)\n", "self.x is what a function gives"),
    ],
)
def test_an_attribute_is_followed_through_the_project(tmp_path, more, reason):
    use, loop = use_of(tmp_path, CLASS + more)
    assert use.changed_in([loop], loop) == reason


def test_an_attribute_that_is_not_always_set_may_not_be_there(tmp_path):
    use, loop = use_of(tmp_path, CLASS.replace("        self.x", "        if ys: self.x"))
    assert use.changed_in([loop], loop) == "self.x may not be there before the loop"
    use, loop = use_of(
        tmp_path, CLASS.replace("for y in ys", "for y in self.x").replace("        self.x", "        if ys: self.x")
    )
    assert use.changed_in([loop], loop) == "", "the loop reads it itself"
