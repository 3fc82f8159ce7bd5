"""Functions of libraries, and those that a script puts in their place."""

import builtins
import functools
import sys
import types

import numpy as np
import pytest

from flatout.fixes.core.kept_reports import reports_of
from flatout.kept.library_functions import is_as_imported, is_of_library, is_open_plain
from flatout.probe.core.seams import Seams

READERS = ["numpy:load", "numpy:loadtxt", "numpy:genfromtxt", "numpy:fromfile", "torch:load"]


@pytest.mark.parametrize("name", [*READERS, "numpy.lib.npyio:NpzFile.__getitem__"])
def test_a_librarys_own_function_is_known(name):
    assert is_of_library(name) and not is_of_library(f"{name}_missing")


def drawing(path, *args):
    return np.random.rand(2)


@pytest.mark.parametrize(
    "own",
    [
        drawing,
        functools.wraps(np.load)(lambda path: drawing(path)),
        functools.partial(np.load, allow_pickle=True),
        functools.lru_cache(np.load),
        np.loadtxt,
        print,
        np.vectorize(drawing),
    ],
)
def test_another_function_in_its_place_is_not(monkeypatch, own):
    monkeypatch.setattr(np, "load", own)
    assert not is_of_library("numpy:load")


def test_a_module_of_the_scripts_is_no_library(monkeypatch, tmp_path):
    made = types.ModuleType("soundfile")
    made.read = drawing
    monkeypatch.setitem(sys.modules, "soundfile", made)
    assert not is_of_library("soundfile:read")
    made.__file__ = str(tmp_path / "soundfile.py")
    exec(compile("def read(path):\n    return 1\n", made.__file__, "exec"), vars(made))
    assert not is_of_library("soundfile:read") and not is_of_library("soundfile:missing")
    assert not is_of_library("no_such_module:read")
    assert is_as_imported(made.read, "read", tmp_path) and not is_as_imported(made.read, "load", tmp_path)


def test_what_flatout_stands_in_for_is_asked_about():
    seams = Seams()
    original = np.load
    seams.wrap("numpy:load", lambda plain, hits: types.FunctionType(reports_of.__code__, reports_of.__globals__))
    try:
        assert np.load is not original and is_of_library("numpy:load")
    finally:
        seams.undo()


def test_open_may_be_replaced(monkeypatch):
    assert is_open_plain()
    monkeypatch.setattr(builtins, "open", drawing)
    assert not is_open_plain()
