"""An argument of one call, read and set so that the rest of the call stays as it was typed."""

import ast

import libcst as cst
import pytest

from flatout.edits.arguments import Given, given, set_argument


def call(text):
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "found", "value"),
    [
        ("load(data)", Given.NOTHING, None),
        ("load(data, workers=2)", Given.EQUAL, "2"),
        ("load(data, workers=4)", Given.LITERAL, "4"),
        ("load(data, workers=n)", Given.ELSEWHERE, "n"),
        ("load(data, workers=1 + 1)", Given.ELSEWHERE, "1 + 1"),
        ("load(data, 4)", Given.LITERAL, "4"),
        ("load(data, 2)", Given.EQUAL, "2"),
        ("load(*data)", Given.ELSEWHERE, None),
        ("load(data, **named)", Given.ELSEWHERE, None),
        ("load(workers=4, *data)", Given.LITERAL, "4"),
        ("load(data, 4, **named)", Given.ELSEWHERE, "4"),  # a name may be given twice
        ("load(data, worker=2)", Given.NOTHING, None),
    ],
)
def test_what_a_call_says_of_an_argument(text, found, value):
    said, expression = given(call(text), "workers", "2", 1)
    assert said is found
    assert (expression and ast.unparse(expression)) == value


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(n=2)"),
        ("f(a)", "f(a, n=2)"),
        ("f(a, b = 1)", "f(a, b = 1, n=2)"),
        ("f(a,b)", "f(a,b, n=2)"),
        ("f(a, n = 1)", "f(a, n = 2)"),
        ("f(n=1, b=2)", "f(n=2, b=2)"),
        ("f(a, *b)", "f(a, *b, n=2)"),
        ("f(a, )", "f(a, n=2, )"),
        ("f(\n    a,\n    b,\n)", "f(\n    a,\n    b,\n    n=2,\n)"),
        ("f(\n    a,\n    b\n)", "f(\n    a,\n    b,\n    n=2\n)"),
        ("f(a,\n  b,  # why\n)", "f(a,\n  b,  # why\n  n=2,\n)"),
        ("f(\n    a  # why\n)", "f(\n    a,  # why\n    n=2\n)"),
        ("f(a,  # why\n  b)", "f(a,  # why\n  b,\n  n=2)"),
    ],
)
def test_an_argument_is_set_and_nothing_else_changes(before, after):
    node = cst.parse_expression(before)
    changed = set_argument(node, "n", "2")
    assert cst.Module([]).code_for_node(changed) == after
    ast.parse(after)
    again = set_argument(changed, "n", "2")
    assert cst.Module([]).code_for_node(again) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a, 1, c)", "f(a, 2, c)"),
        ("f(a)", "f(a, n=2)"),
        ("f(a, *b)", "f(a, *b, n=2)"),
        ("f(a, b=1)", "f(a, b=1, n=2)"),
    ],
)
def test_an_argument_that_is_given_by_its_place_stays_there(before, after):
    assert cst.Module([]).code_for_node(set_argument(cst.parse_expression(before), "n", "2", 1)) == after
