"""Ways to a function's variables that do not name them, and names that stand for other things than Python's."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.lists.hidden_access import hidden_access, is_of_python, seen_by_name


def found(folder, before="", inside="pass", decorator="", **others):
    text = f"{before}\n{decorator}\ndef g(ys):\n    {inside}\n"
    project = project_of(folder, train=text, **others)
    source = project.script
    function = next(each for each in ast.walk(source.tree) if isinstance(each, ast.FunctionDef) and each.name == "g")
    return hidden_access(project, source, function)


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("import sys\nsys._getframe(1)", "_getframe"), ("f(e.__traceback__.tb_frame)", "tb_frame"),
        ("f('gi_frame')", "gi_frame"), ("import inspect\ninspect.stack()", "inspect.stack"),
        ("from inspect import stack", "from inspect import"), ("import gc\ngc.get_objects()", "get_objects"),
        ("import builtins", "builtins"), ("f.__closure__", "__closure__"), ("run = eval", "eval()"),
        ("exec(open('c.py').read())", "exec()"), ("print(globals())", "globals()"), ("a = vars()", "vars()"),
        ("a = vars(m)", "vars()"), ("vars(m).update(a=1)", "vars()"), ("vars(m)['len'] = f", "vars()"),
        ("m.__dict__['len'] = f", "m.__dict__"), ("import m\nsetattr(m, 'len', f)", "setattr()"),
        ("class M(type):\n    __hash__ = None", "class M"), ("class A(metaclass=M): pass", "class A"),
        ("M = type('M', (type,), {})", "type()"), ("print(type(3), isinstance(a, type))", ""),
        ("from abc import ABC, ABCMeta\nclass A(metaclass=ABCMeta): pass\nclass B(ABC): pass", ""),
        ("import m\nm.len = f", "m.len = ..."), ("import m\nm.pool = f; a.len = f", ""),
        ("import random\nrandom.random = f", "random.random = ..."), ("import torch\ntorch.jit.script(g)", "jit"),
        ("import torch\nrun = torch.compile(f)", "torch.compile()"), ("model.compile()", "model.compile()"),
        ("from torch import compile", ""), ("from torch import compile\ncompile(f)", "compile()"),
        ("import numba", "numba"), ("from unittest import mock", "mock"), ("import __main__", "import __main__"),
        ("print(vars(a), dir(a), a.__dict__.items())", ""), ("setattr(a, 'x', 1)", ""), ("model.eval()", ""),
        ("import re, inspect, gc\nre.compile('a'); inspect.signature(f); gc.collect()", ""), ("__name__", ""),
    ],
)  # fmt: skip
def test_what_may_look_into_a_function(tmp_path, before, reason):
    assert found(tmp_path, before) == reason
    assert found(tmp_path, "import other", other=before + "\n") == reason, "wherever it stands"


def test_a_file_that_hides_a_library(tmp_path):
    assert found(tmp_path, "import random", random="def random(): pass\n") == "random.py"


@pytest.mark.parametrize(
    ("decorator", "is_known"),
    [
        ("@torch.no_grad()", True), ("@staticmethod", True), ("@torch.compile", False), ("@cached", False),
        ("@a.setter", False), ("@no_grad()", False),
    ],
)  # fmt: skip
def test_decorators_that_are_not_known_may_do_anything(tmp_path, decorator, is_known):
    assert bool(found(tmp_path, "import torch", decorator=decorator)) is not is_known
    assert found(tmp_path, "torch = f()", decorator="@torch.no_grad()") == "@torch.no_grad()"


@pytest.mark.parametrize("call", ["df.query('a in @x')", "pd.eval('x')", "ne.evaluate('x')"])
def test_queries_of_libraries_read_the_variables_of_who_calls_them(tmp_path, call):
    assert found(tmp_path, inside=call) == call.partition("(")[0] + "()"
    assert found(tmp_path, before=call) == "", "not those of other functions"


@pytest.mark.parametrize(
    ("text", "is_python"),
    [
        ("x = len", True), ("len = f", False), ("from a import *", False), ("from a import len", False),
        ("def f(len): pass", False), ("class len: pass", False), ("try:\n    f\nexcept E as len:\n    pass", False),
        ("match a:\n    case [*len]:\n        pass", False), ("[0 for len in a]", False), ("x.len = 1", True),
    ],
)  # fmt: skip
def test_names_of_python(tmp_path, text, is_python):
    assert is_of_python(project_of(tmp_path, train=text + "\n").script, "set", "len") is is_python


@pytest.mark.parametrize(
    ("text", "is_seen"),
    [
        ("print(locals())", True),
        ("exec(code)", True),
        ("show = eval", True),
        ("a = vars()", True),
        ("frame.query('a > 3')", True),
        ("import inspect\ninspect.currentframe()", True),
        ("print(vars(args)); model.eval()", False),
        ("import torch\ntorch.jit.script(f)", False),
    ],
)
def test_what_reads_a_variable_without_its_name(tmp_path, text, is_seen):
    assert bool(seen_by_name(project_of(tmp_path, train=text), "total")) is is_seen
