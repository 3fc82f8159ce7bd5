"""Which sums a loop keeps beside what it trains: flatout.edits.reading.writes.running_sums."""

import ast

import pytest
from tests.unit.edits.scripts import edited, project_of, same_results

from flatout.edits.reading.writes.running_sums import is_running_sum

FIT = """\
import torch
from collections import Counter, defaultdict

def fit(batches, given):
    {made}
    for x in batches:
        loss = net(x)
        {added}
        loss.backward()
    return {returned}
"""


def found(folder, made, added, returned="1"):
    source = project_of(folder, train=FIT.format(made=made, added=added, returned=returned)).script
    (node,) = (each for each in ast.walk(source.tree) if isinstance(each, ast.AugAssign))
    return is_running_sum(source, node)


@pytest.mark.parametrize(
    ("made", "added", "returned"),
    [
        ("total = 0.0", "total += loss.item()", "total"),
        ("total = torch.zeros(1)", "total += loss.detach()", "total / 3"),
        ("meter = defaultdict(float)", "meter['a'] += loss.item()", "meter"),
        ("meter = Counter()", "meter[x] += 1", "meter"),
        ("meter = {'a': 0, 'b': -1.0}", "meter['a'] += loss.item()", "meter"),
        ("meter = {name: 0.0 for name in given}", "meter['a'] += loss.item()", "meter"),
        ("meter = [0.0] * 3", "meter[0] += loss.item()", "sum(meter)"),
    ],
)
def test_a_sum_that_nothing_in_the_loop_reads_is_one(tmp_path, made, added, returned):
    assert found(tmp_path, made, added, returned)


@pytest.mark.parametrize(
    ("made", "added"),
    [
        ("total = given", "total += loss"),
        ("pass", "given += loss"),
        ("total = 0.0", "total += loss.item(); loss = loss + total"),
        ("total = torch.zeros_like(given)", "total += loss"),
        ("global total; total = 0.0", "total += loss.item()"),
        ("meter = given", "meter['a'] += loss.item()"),
        ("meter = {'a': given}", "meter['a'] += loss.item()"),
        ("meter = {}; meter['a'] = given", "meter['a'] += loss.item()"),
        ("meter = defaultdict(given)", "meter['a'] += loss.item()"),
        ("meter = [given] * 3", "meter[0] += loss.item()"),
    ],
)
def test_what_may_be_part_of_a_graph_is_none(tmp_path, made, added):
    assert not found(tmp_path, made, added)


TASKS = """\
import torch

torch.manual_seed(3)
body = torch.nn.Linear(6, 5)
heads = torch.nn.ModuleDict({name: torch.nn.Linear(5, 1) for name in ("age", "dose")})
shown, meter = {}, {"age": 0.0, "dose": 0.0}
x, y = torch.rand(8, 6), torch.rand(8, 2)
h = torch.tanh(body(x))
for k, name in enumerate(heads):
    loss = (heads[name](h).squeeze(1) - y[:, k]).square().mean()
    loss.backward(retain_graph=True)  # <<
    meter[name] += loss.item()
    shown[name] = loss.detach()
found = [body.weight.grad, *(each.weight.grad for each in heads.values()), *shown.values()]
"""


def test_meters_of_tasks_do_not_keep_their_passes_apart(tmp_path):
    after, left = edited(tmp_path, "one-backward", TASKS)
    assert left == ""
    assert "losses.append(loss)" in after
    same_results(TASKS, after, "found", exact=False)
