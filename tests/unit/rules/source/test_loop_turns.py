"""Which loops of a forward pass made many turns, and which turns depend on each other."""

import ast
import textwrap
from dataclasses import replace

import pytest

from flatout.rules.core.example import example
from flatout.rules.source.loop_turns import counted_loops, turns_are_independent
from flatout.schema.run import Causes, Frame, RepeatedLine


def loop_of(text):
    (statement,) = ast.parse(textwrap.dedent(text)).body
    return statement


@pytest.mark.parametrize(
    "text",
    [
        "for i, table in enumerate(self.tables):\n    parts.append(table(x[:, i]))",
        "for i, expert in enumerate(self.experts):\n    out = out + w[:, i] * expert(x)",
        "for i, expert in enumerate(self.experts):\n    out += w[:, i] * expert(x)",
        "for i in range(n):\n    key = str(i)\n    h = self.first[key](x[:, i])\n    ys[i] = self.second[key](h)",
        "for e in self.experts:\n    mask = choice == e.number\n    out[mask] = e(x[mask])",
        "for head in heads:\n    best = torch.maximum(best, head(x))",
        "for t in range(n):\n    y = torch.cat([y, f(x[t])], 1)",
        "for i in range(n):\n    for head in heads:\n        z = head(x[i])\n        ys.append(z)",
        "for i in range(n):\n    if use[i]:\n        z = f(x[i])\n        total = total + z",
    ],
)
def test_turns_that_add_to_a_result_are_independent(text):
    loop = loop_of(text)
    assert turns_are_independent(loop, loop.body)


@pytest.mark.parametrize(
    "text",
    [
        "for layer in self.layers:\n    x = layer(x)",
        "for block in self.blocks:\n    x = x + torch.relu(block(x))",
        "for t in range(n):\n    h = cell(x[:, t], h)\n    out.append(h)",
        "for t in range(n):\n    self.h = cell(x[:, t], self.h)",
        "for t in range(n):\n    states.append(f(states[-1]))",
        "for t in range(1, n):\n    h[t] = f(h[t - 1])",
        "for _ in range(n):\n    y = y + dt * self.net(y)",
        "for conv in convs:\n    x = torch.cat([x, conv(x)], 1)",
        "while i < n:\n    y.append(f(x[i]))",
    ],
)
def test_turns_that_read_what_an_earlier_one_made_are_not(text):
    loop = loop_of(text)
    assert not turns_are_independent(loop, loop.body)


SOURCE = """\
class Net:
    def forward(self, x):
        parts = [table(x[:, i]) for i, table in enumerate(self.tables)]
        for block in self.blocks:
            for head in block:
                parts.append(head(x))
        return parts
def train():
    for x in loader:
        model(x)
        optimizer.step()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    return str(path)


def loops(script, line, *counts, function="Net.forward"):
    lines = tuple(RepeatedLine(place=Frame(script, number, name), count=count) for number, name, count in counts)
    run = replace(example().run, causes=Causes(repeated_lines=lines))
    return [(loop.line, loop.turns, loop.independent) for loop in counted_loops(run, Frame(script, line, function))]


def test_the_turns_of_a_comprehension_are_counted(script):
    assert loops(script, 3, (3, "Net.forward.<locals>.<listcomp>", 27)) == [(3, 26, True)]


def test_turns_are_those_of_one_entry_of_the_loop(script):
    counts = [(4, "Net.forward", 11), (5, "Net.forward", 130), (6, "Net.forward", 120)]
    assert loops(script, 6, *counts) == [(5, 12, True), (4, 10, True)]


def test_few_turns_are_none(script):
    assert loops(script, 3, (3, "Net.forward.<locals>.<listcomp>", 5)) == []


def test_the_loop_of_a_training_is_none(script):
    assert loops(script, 10, (9, "train", 50), (10, "train", 50), function="train") == []


def test_nothing_is_known_of_a_file_that_is_gone(script):
    assert loops("/nowhere/train.py", 3, (3, "Net.forward", 26)) == []
