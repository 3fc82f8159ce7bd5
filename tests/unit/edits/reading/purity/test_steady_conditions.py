"""Conditions that are told before some statements."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.steady_conditions import is_bound_before, module_name, steady_condition

TEXT = """
import argparse
import numpy as np, torch
def train(loader, often, few=2):
    args = argparse.ArgumentParser().parse_args()
    every, count, total, loss = 5, 0, 0.0, foreign()
    for epoch in range(3):
        for i, (x, y) in tqdm(enumerate(loader)):
            metric = work(x)
            {between}
            if {test}:
                print(metric)
            count += 1
    other = 3
def show(args):
    {elsewhere}
"""


def told(folder, test, between="pass", elsewhere="pass"):
    text = TEXT.replace("{test}", test).replace("{between}", between).replace("{elsewhere}", elsewhere)
    text = text.replace("import argparse", "import argparse\nfrom tqdm import tqdm")
    project = project_of(folder, train=text)
    branch = next(node for node in ast.walk(project.script.tree) if isinstance(node, ast.If))
    block = project.script.parents[branch].body
    found = steady_condition(project, project.script, block[: block.index(branch)], branch.test)
    return None if found is None else (found.text, *found.asked)


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("i % 5 == 0", ("i % 5 == 0",)),
        ("not i % every", ("not i % every",)),
        ("(i + 1) % 5 == 0 or epoch > 1", ("(i + 1) % 5 == 0 or epoch > 1",)),
        ("i in (0, 10)", ("i in (0, 10)",)),
        ("count % 7 == 3", ("count % 7 == 3",)),
        ("i % 5 == 0 and loss.item() > 1", ("i % 5 == 0",)),
        ("x is not None and epoch == 1 and i % 5 == 0", ("epoch == 1 and i % 5 == 0",)),
        ("i % often == 0", ("i % often == 0", "type(often) is not int", "often == 0")),
        ("i > few", ("i > few", "type(few) is not int")),
        (
            "i % args.every == 0",
            (
                "i % args.every == 0",
                "type(args) is not argparse.Namespace",
                'type(getattr(args, "every", None)) is not int',
                "args.every == 0",
            ),
        ),
        ("i % 5 == 0 or loss.item() > 1", None),
        ("not (i % 5 and loss.item())", None),
        ("loss.item() > 1", None),
        ("i == len(loader)", None),
        ("i % (count + 1) == 0", None),
        ("i % 0 == 0", None),
        ("i % 5.0 == 0", None),
        ("x", None),
        ("metric > 1", None),
        ("other == 3", None),
        ("missing == 3", None),
        ("args.a.b == 3", None),
        (
            "every.b == 3",
            ("every.b == 3", "type(every) is not argparse.Namespace", 'type(getattr(every, "b", None)) is not int'),
        ),
    ],
)
def test_conditions(tmp_path, test, found):
    assert told(tmp_path, test) == found


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ("count += 1", "(count + 1) % 5 == 0"),
        ("count += 1; count += 2", "(count + 3) % 5 == 0"),
        ("count += i", None),
        ("count -= 1", None),
        ("count = 3", None),
        ("for count in x: pass", None),
        ("with x as count: pass", None),
        ("(count := 3)", None),
        ("del count", None),
        ("import count", None),
        ("def count(): pass", None),
        ("nonlocal_of(count)", "count % 5 == 0"),
        ("x, *count = y", None),
    ],
)
def test_what_stands_between(tmp_path, between, found):
    assert (told(tmp_path, "count % 5 == 0", between) or (None,))[0] == found


def test_blocks_that_stand_between(tmp_path):
    for block in ("try: pass\n            except E as i: pass", "match x:\n                case {'a': i}: pass"):
        assert told(tmp_path, "i % 5 == 0", block) is None
        assert told(tmp_path, "epoch % 5 == 0", block) is not None


@pytest.mark.parametrize(
    "elsewhere", ["args.every = 3", "setattr(args, 'x', 3)", "print(vars(args))", "parser.parse_args(namespace=args)"]
)
def test_settings_that_something_sets(tmp_path, elsewhere):
    assert told(tmp_path, "i % args.every == 0", elsewhere=elsewhere) is None
    assert told(tmp_path, "i % args.every == 0", elsewhere="args.other = 3") is not None


def test_variables_of_others(tmp_path):
    hidden = TEXT.replace("few=2", "few=lambda wide: 2").replace("import argparse", "import argparse\nwide = 3")
    project = project_of(tmp_path, train=hidden.format(between="pass", test="i % wide == 0", elsewhere="pass"))
    branch = next(node for node in ast.walk(project.script.tree) if isinstance(node, ast.If))
    block = project.script.parents[branch].body
    assert steady_condition(project, project.script, block[:2], branch.test) is None
    assert told(tmp_path, "i % 5 == 0", elsewhere="global i") is None


def test_what_is_bound_before(tmp_path):
    text = "def f(a):\n    b = 1\n    if a:\n        c = 1\n    for d in a:\n        e = 1\n        x = 2\n"
    text += "        g = 1\n    h = 1\n"
    source = project_of(tmp_path, train=text).script
    at = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Assign) and node.targets[0].id == "x")
    assert [name for name in "abcdegh" if is_bound_before(source, name, at)] == ["a", "b", "d", "e"]
    source = project_of(tmp_path, train=text + "    del b\n").script
    at = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Assign) and node.targets[0].id == "x")
    assert not is_bound_before(source, "b", at)


def test_the_name_of_a_module(tmp_path):
    def name(text):
        return module_name(project_of(tmp_path, train=text).script, "torch")

    assert name("import torch\n") == "torch"
    assert name("import torch as t\nimport torch.nn as nn\n") == "t"
    assert name("if x:\n    import torch\n") == ""
    assert name("import torch\ndef f():\n    import torch\n") == ""
    assert name("import torch\ntorch = 3\n") == ""
    assert name("from torch import nn\n") == ""
