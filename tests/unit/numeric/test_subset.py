"""What may be compiled of a function, as its syntax tells."""

import ast
import subprocess
import sys

import pytest

from flatout.numeric.subset import assigned, outer_names, refused, units


def function_of(body, arguments="k"):
    indented = "\n    ".join(body.strip("\n").split("\n"))
    (node,) = ast.parse(f"def f({arguments}):\n    {indented}\n").body
    return node


@pytest.mark.parametrize(
    "body",
    [
        "t = 0\nfor i in range(k):\n    t += i\nreturn t",
        "while k > 1:\n    k = k // 2 if k % 2 else 3 * k\nreturn k",
        "out = []\nfor v in reversed(range(len(k))):\n    out.append(k[v])\nreturn out",
        "for i in range(3):\n    if i > k:\n        raise ValueError(f'{i}'.upper())",
        "for y, row in enumerate(k):\n    row[y] = math.exp(np.float64(y)) + self.size",
    ],
)
def test_a_numeric_function_is_one_unit(body):
    (unit,) = units(function_of(body))
    assert unit.loop is None


@pytest.mark.parametrize(
    "body",
    [
        "print(k)", "k.sum()", "k = {}", "k = f'{k}'", "import os", "try:\n    pass\nfinally:\n    pass", "yield k",
        "global z", "k = lambda: 0", "k = yield", "k = [i for i in k if i for j in k]\nk = {1}", "k = own(k)",
        "for i in k:\n    pass\nelse:\n    pass", "k = torch.zeros(3)", "k = random.random()", "k = __file__",
    ],
)  # fmt: skip
def test_what_has_no_compiled_form_is_refused_with_a_reason(body):
    assert refused(function_of(body))


@pytest.mark.parametrize("arguments", ["*k", "**k", "k, *, m", "k, /"])
def test_arguments_of_other_kinds_are_refused(arguments):
    assert refused(function_of("return 1", arguments))


def test_a_function_without_a_loop_is_not_worth_it():
    assert units(function_of("return k + 1")) == []


def test_the_outermost_loops_that_have_a_compiled_form_are_found():
    body = """
print(k)
for n in range(3):
    name = str(n)
    for i in range(k):
        for j in range(k):
            total = i * j
    with open(name) as file:
        for line in file:
            k += 1
try:
    while k > 3:
        k -= 1
except ValueError:
    for z in range(4):
        k += z
return k
"""
    found = units(function_of(body))
    assert [ast.unparse(unit.loop).splitlines()[0] for unit in found] == [
        "for i in range(k):", "for line in file:", "while k > 3:", "for z in range(4):",
    ]  # fmt: skip
    assert [unit.stored for unit in found] == [(), ("k",), ("k",), ("k",)]


@pytest.mark.parametrize(
    ("loop", "rest", "stored"),
    [
        ("for i in k:\n    v = i\n    t = t + v", "print(t)", ("t",)),
        ("for i in k:\n    v = i", "for i in range(3):\n    print(i)", ()),
        ("for i in k:\n    v = i", "print(i)", ("i",)),
        ("for i in k:\n    v = i", "print(lambda: v)", ("v",)),
        ("for i in k:\n    v = i", "v += len(str(k))", ("v",)),
        ("for i in k:\n    v = i", "v = len(str(k))", ()),
    ],
)
def test_what_is_read_elsewhere_is_left_in_the_variables(loop, rest, stored):
    found = units(function_of(f"t = str(0)\nt = 0\n{loop}\n{rest}"))
    assert found[0].stored == stored


def test_what_the_next_run_of_a_loop_may_read_is_left_there():
    body = "for n in map(str, k):\n    for i in k:\n        if i:\n            v = i\n        w = v\n"
    assert units(function_of(body))[0].stored == ("v",)


def test_names_around_a_function_are_those_that_are_no_variables():
    body = function_of(
        "for i in range(SIZE):\n    k[i] = math.sqrt(self.table[i]) + np.pi\nx = [z for z in range(3)]"
    ).body
    names = {"k", "self", *assigned(body)}
    assert outer_names(body, names) == ["range", "SIZE", "math.sqrt", "self.table", "np.pi"]
    assert assigned(body) == {"i", "x"}


def test_it_is_read_without_numpy():
    code = "import sys, flatout.numeric.subset, flatout.fixes.compiled_python; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
