"""What names stand for in code that handles state dicts."""

import ast

import pytest
import torch
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.states.state_values import EXACT, FRESH, SAME, StateValues

BODY = """
import copy, torch
def f(m, t, d, other):
    one = copy.deepcopy(m.state_dict())
    two = {k: v.clone() for k, v in t.state_dict().items()}
    raw = m.state_dict()
    handed = copy.deepcopy(m.state_dict())
    other(handed)
    for at, ((key, value), mine) in enumerate(zip(one.items(), two.values())):
        half = value * d
        again = half.float()
        part = value[0]
        if key.startswith("a"):
            value = value.lerp(mine, d)
        one[key] = half
        mixed = value
        mixed = other
    strange = m.body
    strange.norm(d)
"""


def values(folder, text=BODY):
    project = project_of(folder, train=text)
    source = project.script
    scope = next(node for node in source.tree.body if isinstance(node, ast.FunctionDef))
    return StateValues(project, source, scope), scope


def test_names_have_a_kind_where_all_that_binds_them_agrees(tmp_path):
    found, _ = values(tmp_path)
    assert {*found.dictionaries} == {"one", "two", "raw"} and found.raw == {"raw"}
    assert found.keys == {"key", "k"}
    assert found.tensors == {"value", "mine", "half", "again", "part", "v"}


@pytest.mark.parametrize(
    "change",
    ["one.update(other)", "one[key] = other", "other(one)", "one = other", "global one", "m.one = one"],
)
def test_a_dictionary_that_may_hold_anything_is_none(tmp_path, change):
    found, _ = values(tmp_path, BODY.replace("    strange = m.body\n", f"    {change}\n"))
    assert "one" not in found.dictionaries and "value" not in found.tensors


@pytest.mark.parametrize(
    ("text", "is_tensor", "is_fresh"),
    [
        ("value", True, False), ("value[0]", True, False), ("value.detach()", True, False), ("+value", False, False),
        ("-value", True, True), ("value * d", True, True), ("d * one[key]", True, True), ("value @ d", False, False),
        ("torch.lerp(value, mine, d)", True, True), ("value.clone().float()", True, True), ("half", True, True),
        ("again", True, True), ("part", True, False), ("strange.norm(d)", False, False), ("d * d", False, False),
        ("[value] + d", False, False), ("value if d else mine", True, False), ("value.split(1)", False, False),
    ],
)  # fmt: skip
def test_tensors_and_those_that_nobody_else_holds(tmp_path, text, is_tensor, is_fresh):
    found, _ = values(tmp_path)
    node = ast.parse(text, mode="eval").body
    names = {each.id: each for each in ast.walk(node) if isinstance(each, ast.Name)}
    if "torch" in names:  # a name is looked up by its text
        assert found.is_function(node)
    assert (found.is_tensor(node), found.is_fresh(node)) == (is_tensor, is_fresh)


def test_what_loops_bind(tmp_path):
    found, scope = values(tmp_path)
    loop = next(node for node in scope.body if isinstance(node, ast.For))
    assert found.is_walk(loop.target, loop.iter)
    known = ["a in range(d)", "a in list(one)", "a in sorted(one.keys())", "a, b in zip(one, two.values())"]
    for text in (*known, "a in d", "a, b in one", "a, *b in one.items()", "a in zip(one, d)", "a in map(d, one)"):
        node = ast.parse(f"for {text}: pass").body[0]
        assert found.is_walk(node.target, node.iter) == (text in known), text


def test_the_lists_of_methods():
    assert EXACT < FRESH and not FRESH & SAME
    value = torch.tensor([[1.5, -2.0]])
    given = {"clamp": (-9, 9), **dict.fromkeys(["add", "sub", "subtract", "mul", "multiply", "eq", "ne", "pow"], (1,))}
    given |= dict.fromkeys(["div", "divide", "true_divide"], (1,))
    for name in FRESH - {"where", "full_like", "lerp", "maximum", "minimum"}:
        made = getattr(torch, name)(value, *given.get(name, ()))
        assert made.untyped_storage().data_ptr() != value.untyped_storage().data_ptr(), name
