"""The lists of what computes and does nothing else, held against the libraries' own signatures."""

import ast
import importlib
import inspect
import re

import numpy as np
import pytest

from flatout.edits.reading.purity.pure_calls import (
    KEYWORDS,
    PURE_FUNCTIONS,
    PURE_METHODS,
    is_constant,
    is_plain_constant,
    is_within,
    words,
)

ACTING = words("out copy inplace overwrite_input overwrite_a overwrite_b where casting input_is_own")


def parameters(dotted):
    """Return the names of a function's arguments, [] where it does not tell."""
    module, _, name = dotted.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    try:
        given = inspect.signature(function).parameters.values()
    except ValueError:
        return re.findall(r"\w+", re.sub(r"=[^,)]*", "", (function.__doc__ or "").partition(")")[0].partition("(")[2]))
    if isinstance(function, np.ufunc):
        return [*map(str, range(function.nin)), *["out"] * function.nout]
    return [each.name for each in given if each.kind is not each.KEYWORD_ONLY]


LISTED = [each for each in PURE_FUNCTIONS if each.startswith(("numpy.", "torch.nn.functional.", "collections."))]


@pytest.mark.parametrize("dotted", LISTED)
def test_no_argument_by_position_is_written_to(dotted):
    most, _ = PURE_FUNCTIONS[dotted]
    assert not ACTING & {*parameters(dotted)[:most]}


@pytest.mark.parametrize("name", [each for each in PURE_METHODS if hasattr(np.ndarray, each)])
def test_no_argument_of_a_method_of_arrays_is_written_to(name):
    most, _ = PURE_METHODS[name]
    told = re.search(rf"{name}\(([^)]*)\)", getattr(np.ndarray, name).__doc__ or "")
    given = re.findall(r"\w+", re.sub(r"=[^,)]*", "", told[1] if told else ""))
    assert "out" not in given[:most]


def test_no_function_changes_in_place_by_its_name():
    names = [each.rpartition(".")[2] for each in (*PURE_FUNCTIONS, *PURE_METHODS)]
    assert [each for each in names if each.endswith("_") and not each.startswith("_")] == []
    assert not ACTING & KEYWORDS
    assert not {"sort", "fill", "put", "resize", "partition", "byteswap", "apply", "map"} & PURE_METHODS.keys()


def call(text):
    return ast.parse(text, mode="eval").body


def test_arguments_within_what_is_listed():
    assert is_within(call("f(x, y, dim=1)"), 2, method=False)
    assert not is_within(call("f(x, y, 1)"), 2, method=False)
    assert is_within(call("f(x, y, -1, None, (1, 2))"), 2, method=True)
    assert not is_within(call("f(x, y, (1, z))"), 2, method=True)
    for text in ("f(*x)", "f(**x)", "f(out=x)", "f(inplace=True)", "f(copy=False)"):
        assert not is_within(call(text), 9, method=True)


def test_constants():
    assert [is_constant(call(each)) for each in ("1", "-1", "(1, (None,))", "x", "[1]", "(1, x)")] == [True] * 3 + [
        False
    ] * 3
    assert is_plain_constant("torch.float32") and is_plain_constant("math.pi")
    assert not is_plain_constant("numpy.random") and not is_plain_constant("other.float32")
