"""Code that only computes, and code that may write into something."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.quiet_code import appends_to_own, is_builtin, is_computing, loud

HEAD = """\
import copy, math, random
import numpy as np
import torch
from torch.utils.data import DataLoader
def double(x):
    return x * 2
def grow(x):
    x.append(1)
def deep(x):
    return double(grow(x))
class Walk:
    def __init__(self, n):
        self.n = n
    @property
    def length(self):
        return grow(self.n)
    def each(self):
        for i in range(self.n):
            yield i
"""


def said(folder, lines, head=HEAD, arguments="x, y, z"):
    body = "\n".join(f"    {line}" for line in lines.split("\n"))
    project = project_of(folder, train=f"{head}def f({arguments}):\n{body}\n")
    return loud(project, project.script, project.script.tree.body[-1].body, lambda _: False)


@pytest.mark.parametrize(
    "lines",
    [
        "a = x + len(y) * math.sqrt(2)\nb = torch.lerp(x, y, 0.5)", "a = x.float().mean().item()", "double(x)",
        "a = []\na[:] = [1]\nb = {}\nb['x'] = x", "n = 0\nfor i in range(3):\n    n += 1",
        "with torch.no_grad():\n    a = x",
        "a = copy.deepcopy(x)\nprint(f'{a}')", "for a in y:\n    z = a", "z = [a for a in y if a]",
        "a = random.choice(y)",
        "y.name = 1", "a = np.random.randint(3)",
    ],
)  # fmt: skip
def test_what_computes_is_quiet(tmp_path, lines):
    assert said(tmp_path, lines) == ""


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("x.add_(1)", "x.add_()"), ("x += 1", "x += 1"), ("x[0] = 1", "x[0]"), ("del x[0]", "x[0]"),
        ("x.data = y", "x.data"), ("y.append(x)", "y.append()"), ("grow(x)", "grow()"), ("a = deep(x)", "deep()"),
        ("a = x.length", "x.length()"), ("map(grow, x)", "map()"), ("a = sorted(x, key=grow)", "sorted()"),
        ("torch.add(x, y, out=z)", "torch.add()"), ("random.shuffle(x)", "random.shuffle()"), ("yield x", "(yield x)"),
        ("with x:\n    a = 1", "with x"), ("unknown(x)", "unknown()"), ("np.put(x, 1, 2)", "np.put()"),
        ("a = Walk(3)", "Walk()"), ("n = 0.5\nfor n in y:\n    n += 1", "n += 1"),
        ("a = DataLoader(x)", "DataLoader()"), ("for a in (b for b in DataLoader(x)):\n    z = a", "DataLoader()"),
    ],
)  # fmt: skip
def test_what_may_write_is_told(tmp_path, lines, what):
    assert said(tmp_path, lines) == what


def test_an_iterator_that_writes_counts_where_it_may_be_what_a_loop_walks(tmp_path):
    loop = "for a in y:\n    z = a"
    assert said(tmp_path, loop, HEAD + "class C:\n    def __next__(self):\n        self.seen.append(1)\n") != ""
    assert said(tmp_path, loop, HEAD + "class C:\n    def __next__(self):\n        return 1\n") == ""
    assert said(tmp_path, loop + "\n", HEAD + "def g(x):\n    x.n = 1\n    yield 1\n") != ""
    assert said(tmp_path, "b = [1]\nfor a in b:\n    z = a", HEAD + "def g(x):\n    x.n = 1\n    yield 1\n") == ""


STEPS = """def steps(m):
    for _ in range(3):
        m.n = 1
        yield 1
"""


@pytest.mark.parametrize(
    ("lines", "head", "what"),
    [
        ("a = x.norm(y)", "class Net:\n    def __init__(self):\n        self.norm = nn.BatchNorm1d(2)\n", "x.norm()"),
        ("a = x.log(y)", "class Net:\n    def __init__(self):\n        self.log = lambda v: v\n", "x.log()"),
        ("a = torch.log(y)", "torch.log = other\n", "torch.log()"),
        ("a = list(x)", STEPS, "list(x)"),
        ("a = max(x)", STEPS, "max(x)"),
        ("a, b = x", STEPS, "a, b = x"),
        ("a = [*x]", STEPS, "*x"),
        ("runs = map(grow, y)\nfor a in runs:\n    z = a", "", "map()"),
        ("a = x @ y", "class S:\n    def __matmul__(self, x):\n        return x\n", "x @ y"),
        ("x.gain = 3", "class S:\n    def __setattr__(self, n, v):\n        pass\n", "x.gain"),
    ],
)
def test_what_runs_code_without_a_loop_or_a_known_call(tmp_path, lines, head, what):
    assert said(tmp_path, lines, HEAD + head) == what
    if head:
        assert said(tmp_path, lines) == ""


def test_a_lazy_loop_that_was_made_before(tmp_path):
    text = HEAD + "runs = map(grow, y)\ndef f():\n    for a in runs:\n        z = a\n"
    project = project_of(tmp_path, train=text)
    body = project.script.tree.body[-1].body
    assert loud(project, project.script, body, lambda _: False) == "for ... in runs"


def test_a_function_of_pythons_may_have_another_meaning(tmp_path):
    source = project_of(tmp_path, train="def len(x):\n    return x\na = len(3), max(3, 4), [].append(5)\n").script
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    assert [is_builtin(source, call.func) for call in calls] == [False, True, False]
    assert [is_computing(source, call) for call in calls] == [False, True, False]


def test_lists_that_a_function_makes_may_grow(tmp_path):
    source = project_of(tmp_path, train="def f(a):\n    b = []\n    b.append(1)\n    a.append(2)\n").script
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    assert [appends_to_own(source, call) for call in calls] == [True, False]
