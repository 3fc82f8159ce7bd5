"""Code in which no weight changes, and code that is not known to leave them."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.states.state_values import StateValues
from flatout.edits.reading.states.still_code import StillCode, is_without_gradients

HEAD = "import copy, math, torch\nfrom torch import nn\n"
START = """def f(m, t, d, x):
    one = copy.deepcopy(m.state_dict())
    for key, value in one.items():
        pass
"""


def change(folder, lines, head=""):
    body = "\n".join(f"    {line}" for line in lines.split("\n"))
    project = project_of(folder, train=f"{HEAD}{head}{START}{body}\n")
    source = project.script
    scope = source.tree.body[-1]
    return StillCode(project, source, scope, StateValues(project, source, scope)).change(scope.body[1:], ())


@pytest.mark.parametrize(
    "lines",
    [
        "for k in one:\n    one[k] = d * one[k] + (1 - d) * one[k]", "with torch.no_grad():\n    a = one['w'].float()",
        "for k, v in one.items():\n    if v.dtype.is_floating_point and 'bn' not in k:\n        v = v.lerp(v, d)",
        "n = 0\nfor i in range(3):\n    n += 1", "a = min(d, (1 + x) / (10 + x))", "a = math.sqrt(d)",
        "two = {k: v.clone() for k, v in t.state_dict().items()}", "two = copy.deepcopy(t.state_dict())",
        "a, b = d, x", "a = [v * 2 for v in one.values() if v.dim() > 1]", "a = key.replace('a', 'b').split('.')[0]",
        "a = len(one), list(one), sorted(one.keys())", "a = d if x > 3 else -d", "del one['a']", "return d",
        "a = torch.where(value > 0, value, -value)", "a = isinstance(value, torch.Tensor)",
    ],
)  # fmt: skip
def test_what_computes_leaves_the_weights(tmp_path, lines):
    assert change(tmp_path, lines) == ""


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("y = m.norm(x)", "m.norm(x)"), ("a = list(x)", "list(x)"), ("a = sum(x)", "sum(x)"), ("a, b = x", "(a, b)"),
        ("for a in x:\n    pass", "for a in x:"), ("a = [v for v in x]", "x"), ("a = x @ d", "x @ d"),
        ("a = d in x", "d in x"), ("a = max(x)", "max(x)"), ("a = f'{x}'", "f'{x}'"), ("a = x[0]", "x[0]"),
        ("a = (v for v in one.values())", "(v for v in one.values())"), ("m.gain = 3", "m.gain"), ("x += 1", "x += 1"),
        ("a = lambda: x", "lambda: x"), ("with x:\n    pass", "x"), ("while d:\n    pass", "while d:"),
        ("print(x)", "print(x)"), ("yield x", "(yield x)"), ("x[0] = 1", "x[0]"), ("a = map(x, d)", "map(x, d)"),
        ("a = value.mul_(2)", "value.mul_(2)"), ("a = torch.add(value, d, out=x)", "torch.add(value, d, out=x)"),
        ("a = '%s' % x", "'%s' % x"), ("try:\n    a = d\nexcept ValueError:\n    pass", "try:"),
        ("a = type(*x)", "type(*x)"),
        ("a = value.unfold(0, 1, 1)", "value.unfold(0, 1, 1)"), ("import os", "import os"),
        ("a = zip(one, x)", "zip(one, x)"),
    ],
)  # fmt: skip
def test_what_may_change_them_is_told(tmp_path, lines, what):
    assert what in change(tmp_path, lines)


@pytest.mark.parametrize(
    ("lines", "head"),
    [
        ("a = value.lerp(value, d)", "torch.Tensor.lerp = other\n"),
        ("a = value.lerp(value, d)", "setattr(torch.Tensor, 'lerp', other)\n"),
        ("a = torch.lerp(value, value, d)", "torch.lerp = other\n"),
        ("a = d.rate", "class S:\n    @property\n    def rate(self):\n        return self.step()\n"),
        ("a = d.rate", "class S:\n    rate = property(step)\n"),
        ("a = 1 if x else 2", "class S:\n    def __len__(self):\n        return self.step()\n"),
    ],
)
def test_what_the_user_gives_another_meaning(tmp_path, lines, head):
    assert change(tmp_path, lines, head) and not change(tmp_path, lines)


@pytest.mark.parametrize(
    ("head", "still"),
    [
        ("class S:\n    def __init__(self):\n        self.n = 0\n", True),
        ("class S:\n    def __init__(self):\n        self.n = torch.zeros(1)\n", False),
        ("class S:\n    def __init__(self):\n        self.register_buffer('n', 3)\n        self.n = 0\n", False),
        ("class S:\n    @property\n    def n(self):\n        return 1\n", False),
    ],
)
def test_counters_of_objects(tmp_path, head, still):
    body = "    one = copy.deepcopy(m.state_dict())\n    self.n += 1\n    return len(one)\n"
    text = f"{HEAD}{head}def f(self, m):\n{body}"
    project = project_of(tmp_path, train=text)
    scope = project.script.tree.body[-1]
    values = StateValues(project, project.script, scope)
    assert (StillCode(project, project.script, scope, values).change(scope.body[1:], ()) == "") == still


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("def f():\n    with torch.no_grad():\n        a = 1\n", True),
        ("@torch.no_grad()\ndef f():\n    a = 1\n", True),
        ("def f():\n    a = 1\n", False),
        ("def f():\n    with torch.no_grad(), torch.enable_grad():\n        a = 1\n", False),
        ("def f():\n    with torch.autocast('cpu'):\n        a = 1\n", False),
    ],
)
def test_where_torch_records_nothing(tmp_path, text, without):
    source = project_of(tmp_path, train=HEAD + text).script
    scope = source.tree.body[-1]
    node = next(each for each in ast.walk(scope) if isinstance(each, ast.Assign))
    assert is_without_gradients(source, node, scope) == without
