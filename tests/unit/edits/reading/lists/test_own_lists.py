"""Lists that a function keeps to itself: what they are, where others get hold of them, and whether they are there."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.lists.own_lists import OwnList, is_bound_before, is_read_at_once, makes_list


def own_of(folder, text):
    """Return the variable `x` of the function `g`, and the first loop over `ys` in it."""
    source = project_of(folder, train=text).script
    function = next(each for each in ast.walk(source.tree) if isinstance(each, ast.FunctionDef) and each.name == "g")
    loops = (each for each in ast.walk(function) if isinstance(each, ast.For) and ast.unparse(each.iter) == "ys")
    return OwnList(source, function, "x"), next(loops)


def function(first, last="pass", loop="for y in ys:\n        f(y in x)"):
    return f"def g(ys):\n    {first}\n    {loop}\n    {last}\n"


@pytest.mark.parametrize(
    ("value", "makes"),
    [
        ("[1, y]", True), ("[y for y in ys]", True), ("list(ys)", True), ("sorted(ys, key=f)", True), ("(1, 2)", True),
        ("[0] * 9 + list(ys)", True), ("'a b'.split()", True), ("' '.join(ys).split(' ')", True),
        ("ys", False), ("ys.split()", False), ("ys[:]", False), ("[0] * n", False), ("[0] + ys", False),
        ("ys.tolist()", False), ("f(ys)", False), ("[1] and ys", False), ("[1] - [2]", False), ("ys.list(1)", False),
    ],
)  # fmt: skip
def test_what_makes_a_list_of_its_own(tmp_path, value, makes):
    source = project_of(tmp_path, train=f"x = {value}\n").script
    assert makes_list(source, source.tree.body[0].value) is makes
    shadowed = project_of(tmp_path, train=f"from a import *\nx = {value}\n").script
    calls = any(name in value for name in ("list(", "sorted("))
    assert makes_list(shadowed, shadowed.tree.body[1].value) is (makes and not calls)


@pytest.mark.parametrize(
    "first",
    [
        "x = list(ys)", "x: list = []", "x, z = [1], ys", "x = [0]; x.append(1); x[0] = 3; x.sort(key=f); del x[0]",
        "x = [1]; z = len(x), x[0], [*x], f(*x), sorted(x), not x, 1 in x, x.copy(), x[1:]",
        "x = [1]; z = [f(a, b) for a, b in zip(ys, x)], [a for a in x if a in x], any(a in x for a in ys)",
        "x = [1]\n    for z in enumerate(x, 1):\n        f(z)\n    while x:\n        x.pop()",
    ],
)  # fmt: skip
def test_it_stays_its_own(tmp_path, first):
    own, loop = own_of(tmp_path, function(first))
    assert own.leaves(loop) == ""
    assert own.changes_in([loop]) == []


@pytest.mark.parametrize(
    "use",
    [
        "f(x)", "f(a=x)", "z = x", "z = [x]", "z = (1, x)", "f(x.append)", "z = x.append", "z.a = x", "yield x",
        "yield from x", "z = x or 1", "z = x if ys else 1", "z = x + [1]", "z = [1] + x", "z = x == ys", "z = x in ys",
        "z = 0 in x == ys", "z = iter(x)", "z = zip(x, ys)", "z = enumerate(x)", "sum([], x)", "max(x, ys)",
        "print(x, file=f)", "z += x", "lambda: x", "z = (a for a in x)", "z = (a in x for a in ys)",
        "f(a in x for a in ys)",
        "class A:\n        b = 1 in x", "def h():\n        return x", "def h(a=x):\n        pass", "assert f, x",
        "for z in [x]:\n        pass", "with f(x):\n        pass", "raise ValueError(x)", "z[x] = 1", "z = x.__len__()",
        "z = [*map(f, x)] if f else {**x}", "z: x = 1",
    ],
)  # fmt: skip
def test_what_hands_it_on_counts_before_the_loop_and_not_behind_it(tmp_path, use):
    own, loop = own_of(tmp_path, function(f"x = [1]; z = 0\n    {use}"))
    assert own.leaves(loop).startswith("x may be changed by what has it from line ")
    own, loop = own_of(tmp_path, function("x = [1]; z = 0", use))
    assert own.leaves(loop) == ""


def test_in_a_loop_around_what_comes_behind_comes_before_the_next_turn(tmp_path):
    text = "def g(zs, ys):\n    {}\n    for z in zs:\n        {}\n"
    text += "        for y in ys:\n            f(y in x)\n        {}\n"
    for outer, inner, behind, reason in (
        ("x = [1]", "pass", "f(x)", "x may be changed by what has it from line 7"),
        ("pass", "x = [1]", "f(x)", ""),
        ("pass", "x = [1]", "f(lambda: x)", "x may be changed by what has it from line 7"),
        ("x = [1]", "pass", "return x", ""),
        ("pass", "x = [1]", "if z: f(x)", ""),
        ("pass", "if z: x = [1]", "pass", "x may not be there before the loop"),
    ):
        own, loop = own_of(tmp_path, text.format(outer, inner, behind))
        assert own.leaves(loop) == reason


@pytest.mark.parametrize(
    "first",
    [
        "x = ys", "x = [1]; x = [2]", "x = z = [1]", "x = [1]; x += [2]", "x = [1]; del x", "global x; x = [1]",
        "z = (x := [1])", "x, z = ys", "for x in ys: pass", "with f() as x: pass", "import x", "x = [a for x in ys]",
        "x = [1]; [0 for x in ys]", "x = [1]\n    def x(): pass", "x = [1]\n    class x: pass", "pass",
        "x = [1]\n    try: f()\n    except ValueError as x: pass", "x = [1]\n    match f():\n        case [x]: pass",
        "x = [1]\n    match f():\n        case [*x]: pass", "x = [1]\n    def h():\n        nonlocal x\n        x = 1",
    ],
)  # fmt: skip
def test_a_name_that_is_bound_otherwise_is_none_of_its_own(tmp_path, first):
    own, loop = own_of(tmp_path, function(first))
    assert own.leaves(loop) != ""
    own, loop = own_of(tmp_path, "def g(ys, x):\n    for y in ys:\n        f(y in x)\n")
    assert own.leaves(loop) == "x is no list that its function makes in one place"


def test_changes_are_told(tmp_path):
    loop = "for y in ys:\n        x.append(y); x[0] = y; x.index(y); x.sort(); del x[0]"
    own, statement = own_of(tmp_path, function("x = [1]", loop=loop))
    assert own.leaves(statement) == "", "changes hand nothing on"
    assert sorted(node.col_offset for node in own.changes_in([statement])) == [8, 21, 43, 57]


def test_what_is_read_at_once(tmp_path):
    for text, at_once in (
        ("any(a for a in b)", True), ("' '.join(a for a in b)", True), ("c.join(a for a in b)", False),
        ("f(a for a in b)", False), ("zip((a for a in b), c)", False), ("sorted((a for a in b), key=f)", True),
        ("iter(a for a in b)", False), ("max((a for a in b), 1)", False),
    ):  # fmt: skip
        source = project_of(tmp_path, train=text + "\n").script
        generator = next(each for each in ast.walk(source.tree) if isinstance(each, ast.GeneratorExp))
        assert is_read_at_once(source, generator) is at_once, text


def test_a_name_of_the_module_is_bound_before_a_function_that_follows(tmp_path):
    for text, there in (
        ("x = 1\ndef g():\n    f(x)\n", True), ("def g():\n    f(x)\nx = 1\n", False),
        ("x = 1\nclass A:\n    def g(self):\n        f(x)\n", True), ("if y:\n    x = 1\ndef g():\n    f(x)\n", False),
    ):  # fmt: skip
        source = project_of(tmp_path, train=text).script
        call = next(each for each in ast.walk(source.tree) if isinstance(each, ast.Expr))
        assert is_bound_before(source, call, "x", None) is there
