"""Code in which nothing of others runs, and what has to be plain for that."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.lists.quiet_regions import QuietRegion


def region_of(folder, body, more="", arguments="xs, ys, n"):
    """Return the last statement of `g` with a loop in it."""
    text = f"import math, random\nimport torch\nNUM = 3\ndef g({arguments}):\n    out = []\n    {body}\n{more}"
    project = project_of(folder, train=text)
    function = next(each for each in project.script.tree.body if isinstance(each, ast.FunctionDef))
    return QuietRegion(project, project.script, function, function.body[-1])


@pytest.mark.parametrize(
    ("body", "lists", "values"),
    [
        ("return [1 / xs.count(x) for x in xs]", "xs", ""),
        ("z = {x: xs.index(x) for x in sorted(set(ys)) if x in xs}", "ys xs", ""),
        ("return any(x in xs for x in ys), [y for y in xs]", "ys xs", ""),
        ("return torch.tensor([xs.count(x) for x in xs], dtype=torch.float)", "xs", ""),
        ("return f([xs.count(x) + n for x in xs], NUM)", "xs", "n"),
        ("if all(x in xs for x in ys): f()", "ys xs", ""),
        ("for i in range(len(xs)):\n        out.append((i, xs[i] in ys))", "xs ys", ""),
        ("for i, x in enumerate(xs):\n        if x == n or x is None: continue\n        z = max(x, i)", "xs", "n"),
        (
            "while len(out) < NUM:\n        z = random.randrange(n)\n        if z not in xs: out.append(z)",
            "xs",
            "NUM n",
        ),
        ("z = 0\n    for x in xs:\n        z += x\n        y = -abs(z) if x else 'a'", "xs", "z"),
        ("for x in xs:\n        for y in ys:\n            z = (x, y)\n            z = len(x)", "xs ys", ""),
    ],
)
def test_what_is_quiet_and_on_which_conditions(tmp_path, body, lists, values):
    region = region_of(tmp_path, body)
    assert region.is_quiet
    assert {*region.lists} == {*lists.split()} and {*region.values} == {*values.split()}


@pytest.mark.parametrize(
    "body",
    [
        "return [f(x) for x in xs]", "return [x.y for x in xs]", "return [x for x in f(xs)]",
        "return [x() for x in xs]",
        "return (x in ys for x in xs)", "return f(x in ys for x in xs)", "return [x for x, y in xs]",
        "return [[x in ys for x in xs], f()]", "return f(n.z, [x for x in xs])", "return f(a=[x for x in xs], **n)",
        "return f()([x for x in xs])", "return n.f([x for x in xs])", "return f(f(), [x for x in xs])",
        "return [f'{x}' for x in xs]", "return [(z := x) for x in xs]", "return [x[0] for x in xs]",
        "return [lambda: x for x in xs]", "xs = [x for x in xs]", "return [x in unknown for x in xs]",
        "return [max(xs, key=n) for x in xs]", "return [round(*xs) for x in xs]", "return [b'a' in ys for x in xs]",
        "for x in xs:\n        n.append(x)", "for x in xs:\n        n.y = x", "for x in xs:\n        ys[0] = x",
        "for x in xs:\n        f(x)", "for x in xs:\n        yield x",
        "for x in xs:\n        pass\n    else:\n        f()",
        "for x in xs:\n        try: pass\n        finally: pass", "for x in xs:\n        with n: pass",
        "for x in xs:\n        import a", "for x in xs:\n        del n", "for x in xs:\n        assert n",
        "for x in xs:\n        out.append(x)\n        z = x in out", "f(out)\n    for x in xs:\n        out.append(x)",
        "z = out\n    for x in xs:\n        out.append(x in z)", "for x in xs:\n        out.extend(x)",
        "for xs in xs:\n        pass", "for x in xs:\n        xs = x", "for n.x in xs:\n        pass",
        "if n: z = f()\n    for x in xs:\n        z = x", "for x in ys: pass\n    for x in xs:\n        n = x",
        "with n as z: pass\n    for x in xs:\n        z = x", "global z\n    for x in xs:\n        z = x",
        "for x in xs:\n        z = random.choice(n)", "for x in xs:\n        z = n.random()", "f(xs)",
        "for x in xs:\n        z = xs[0:1]", "for x in xs:\n        z = [x]", "for x in xs:\n        z = {**x}",
        "async def h():\n        return [x async for x in xs]",
    ],
)  # fmt: skip
def test_what_is_not(tmp_path, body):
    assert not region_of(tmp_path, body).is_quiet


def test_a_loop_that_may_wait_for_others(tmp_path):
    body = "while n not in xs:\n        pass"
    assert region_of(tmp_path, body).is_quiet
    for more in ("import threading\n", "import signal\n", "class A:\n    def __del__(self): pass\n"):
        assert not region_of(tmp_path, body, more).is_quiet
        assert region_of(tmp_path, "for x in xs:\n        z = n not in xs", more).is_quiet, "it ends by itself"
    assert region_of(tmp_path, body, "torch.set_num_threads(1)\n").is_quiet


def test_names_that_others_may_take_away(tmp_path):
    body = "for x in xs:\n        z = NUM"
    assert region_of(tmp_path, body).values == ("NUM",)
    for more in ("del NUM\n", "def h():\n    global NUM\n    NUM = 1\n"):
        assert not region_of(tmp_path, body, more).is_quiet
    assert not region_of(tmp_path, body.replace("NUM", "LATER"), "LATER = 1\n").is_quiet
