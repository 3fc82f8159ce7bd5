"""Statements that do nothing but to compute plain values: what is proven, and what is left with the reason.

Modules: flatout.edits.reading.purity.plain_calls, flatout.edits.reading.purity.plain_values.
"""

from textwrap import dedent, indent

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.plain_values import Unproven
from flatout.edits.reading.purity.plain_work import PlainWork

HEAD = """\
import collections, math, operator
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
LIMIT = 3
model = nn.Linear(3, 2)
def half(v, by=2, *, more=0):
    return v / by + more
def rows_of(v):
    rows = []
    for each in v:
        if each > LIMIT:
            continue
        rows.append(each * 1)
    return rows
def again(v):
    return again(v)
def f(x, y, z):
"""


def proof(folder, text):
    """Return the proof for some lines of a function, or the reason why there is none."""
    project = project_of(folder, train=HEAD + indent(dedent(text).strip(), "    ") + "\n")
    try:
        return PlainWork(project, project.script, project.script.tree.body[-1].body)
    except Unproven as reason:
        return str(reason)


PROVEN = {
    "a = (x.argmax(1) == y).float().mean().item()": {"x": "tensor", "y": "number"},
    "a = half(x, more=1) + half(v=y)": {"x": "number", "y": "number"},
    "a = torch.stack([x, y]).norm(dim=0)": {"x": "tensor", "y": "tensor"},
    "a = np.percentile(x, 90, 0)": {"x": "array"},
    "a = math.sqrt(x) if y else z": {"x": "number", "y": "number", "z": "number"},
    "a = rows_of(x)\na[0] += 1": {"x": "tensor"},
    "a = sum(p.grad.norm() for p in z.parameters())": {"z": "model"},
    "a = {n: p.std() for n, p in model.named_parameters()}": {"model": "model"},
    "a = max((x[i], -i) for i in range(3))[1]": {"x": "tensor"},
    "a = sorted(x.tolist(), key=lambda v: -v)[:LIMIT]": {"x": "tensor"},
    "a = collections.defaultdict(int)\nfor v in x.tolist():\n    a[v] += 1": {"x": "tensor"},
    "b = [[0] * 3 for _ in range(3)]\nfor i, v in enumerate(x.tolist()):\n    b[i][0] = v\na = b[1]": {"x": "tensor"},
    "a = 0\nwhile a < x:\n    a += 1": {"x": "number"},
    "a = 0.0\nfor v in x:\n    if v > 1:\n        break\n    a += v.sum()": {"x": "tensor"},
    "a = f'{x:.3f} {y}' + '%d' % z": {"x": "number", "y": "number", "z": "number"},
    "with torch.no_grad():\n    a = x.max(1).values": {"x": "tensor"},
    "b, c = torch.sort(x, 1, True)\na = b[0]": {"x": "tensor"},
    "a = [v for v in x.tolist() if v in (1, 2)]\na.sort()": {"x": "tensor"},
    "a = x.clip(0, 1, None)": {"x": "tensor"},
    "a = x.astype(np.float32) * np.pi": {"x": "array"},
}


@pytest.mark.parametrize(("text", "asked"), PROVEN.items(), ids=PROVEN)
def test_what_is_proven(tmp_path, text, asked):
    found = proof(tmp_path, text)
    assert {name: (uses - {"sure"}).pop() for name, uses in found.asked.items()} == asked
    assert "a" in found.changed


LEFT = {
    "a = x.add_(1)": "x.add_() may do more",
    "a = x\na += 1": "a may be changed in place",
    "a = x.detach()\na += 1": "a may be changed in place",
    "a = x + 1\na += 1\nb = x.view(-1)\nb[0] = 1": "b[0] may be changed",
    "a = [x]\na[0] += 1": "changed in place",
    "a = list(x)\na[0] += 1": "changed in place",
    "a = [v for v in x]\nb = a\nb[0] += 1": "changed in place",
    "a = []\nb = a\nb.append(x)\na[0] += 1": "changed in place",
    "a = np.sqrt(x, y)": "is given more",
    "b = np.histogram(x, bins=y)\na = b[1]\na += 1": "changed in place",
    "a = np.diff(x, 0)\na += 1": "changed in place",
    "a = np.sqrt(x, where=y)": "is given more",
    "a = np.nan_to_num(x)": "may do more",
    "a = F.relu(x, True)": "is given more",
    "a = torch.add(x, 1, out=y)": "is given more",
    "a = torch.add(*x)": "is given more",
    "a = x.sum(**y)": "may do more",
    "a = x.cumsum(0, None, y)": "may do more",
    "a = sum([], start=x)": "is given more",
    "a = sum(x, y)": "is given more",
    "a = operator.iadd(x, 1)": "may do more",
    "a = x.size_of_it": "may do something",
    "a = model(x)": "may do more",
    "a = [b for b in model.modules()]": "may do more",
    "a = again(x)": "more or less",
    "a = half(x, 2, 3, 4)": "more or less",
    "a = half(*x)": "may do more",
    "a = x.sort(1)": "may change what others have",
    "a = torch.zeros": "not known to be a plain value",
    "a = lambda: x": "may do more",
    "a = (v for v in x)": "may do more",
    "a = [(b := v) for v in x]": "may do more",
    "a = sorted(x, key=half)": "may do more",
    "x.append(1)\na = x": "may change what others have",
    "if x:\n    a = 1\nb = a": "may be unbound",
    "for i in range(3):\n    a = i\nb = a": "may be unbound",
    "a = a + 1": "may be unbound",
    "for i in range(3):\n    pass\nelse:\n    a = 1": "may do more",
    "a = x\nreturn a": "may do more",
    "assert x\na = 1": "may do more",
    "global LIMIT\na = 1": "may do more",
    "with open(x):\n    a = 1": "with open(x)",
    "x.a = 1\na = 1": "x.a is changed",
    "del x\na = 1": "may do more",
}


@pytest.mark.parametrize(("text", "reason"), LEFT.items(), ids=LEFT)
def test_what_is_left(tmp_path, text, reason):
    assert reason in proof(tmp_path, text)


def test_what_is_read_in_any_case(tmp_path):
    asked = proof(tmp_path, "b = x\nif b > 1:\n    a = y\nelse:\n    a = [v for v in z if v > model]").asked
    assert {name for name, uses in asked.items() if "sure" in uses} == {"x"}
    asked = proof(tmp_path, "a = x and y < z < model").asked
    assert {name for name, uses in asked.items() if "sure" in uses} == {"x"}
    asked = proof(tmp_path, "a = [v + x for v in y]\nb = half(z)").asked
    assert {name for name, uses in asked.items() if "sure" in uses} == {"y", "z"}


def test_what_is_bound_in_any_case(tmp_path):
    found = proof(tmp_path, "a = 1\nfor b in x:\n    c = b\nif a:\n    d = e = 1\nelse:\n    d = 2")
    assert "may do more" in found  # `d = e = 1`
    found = proof(tmp_path, "a = 1\nfor b in x:\n    c = b\nif a:\n    d = 1\n    e = 1\nelse:\n    d = 2")
    assert (found.bound, found.changed) == ({"a", "d"}, {"a", "b", "c", "d", "e"})


def test_products_of_matrices_are_told(tmp_path):
    assert proof(tmp_path, "a = x @ y").multiplies
    assert not proof(tmp_path, "a = x * y").multiplies
    assert {"half", "x", "by", "more"} <= proof(tmp_path, "a = half(x)").names
