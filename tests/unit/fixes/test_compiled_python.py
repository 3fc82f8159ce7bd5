"""Which functions are offered to be compiled, what files are served for it, and what it may give."""

import hashlib
import math

import pytest

from flatout.fixes import compiled_python
from flatout.fixes.compiled_python import FIX
from flatout.fixes.core.bounds import FUNCTIONS
from flatout.fixes.core.fix import Unfit
from flatout.fixes.source.source_edit import SourceEdit, edited_files
from flatout.rules.core.example import example, line
from flatout.schema.phase import Phase
from flatout.schema.trial import Selection

TEXT = """\
import numpy as np
def blur(image):
    total = 0
    for y in range(9):
        total += image[y]
    return total


class Photos:
    def __getitem__(self, index):
        image = open(index)
        for y in range(9):
            image[y] = 0
        return image


def plain(image):
    return sorted(image)
"""


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Return a recording in which these lines of the file took these seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compiled_python, "find_spec", lambda name: name)
    path = tmp_path / "train.py"
    path.write_text(TEXT)

    def make(*found, process="main", leaf="", phase=Phase.HOST):
        lines = [line(s, (str(path), n, f), phase=phase, part="tail", process=process, leaf=leaf) for s, n, f in found]
        rest = line(1.0, (str(path), 1, "<module>"), phase=Phase.FORWARD, leaf="torch", process=process)
        return example(step_ms=100, forward=50, backward=20, lines=[*lines, rest]).run

    return make


def test_hot_functions_and_hot_loops_are_offered_by_name(recorded):
    run = recorded((0.5, 5, "blur"), (0.3, 13, "Photos.__getitem__"), (0.4, 19, "plain"))
    assert FIX.choices(run) == ({"functions": "train.py:Photos.__getitem__, train.py:blur"},)


@pytest.mark.parametrize(
    ("found", "leaf"),
    [
        ([(0.5, 19, "plain")], ""),
        ([(0.5, 11, "Photos.__getitem__")], ""),  # the file that is opened, and not the loop
        ([(0.01, 5, "blur")], ""),
        ([(0.5, 5, "blur")], "torch"),
        ([(0.5, 5, "gone")], ""),
        ([], ""),
    ],
)
def test_what_is_not_hot_or_has_no_loop_is_not_offered(recorded, found, leaf):
    refused = FIX.choices(recorded(*found, leaf=leaf))
    assert isinstance(refused, Unfit) and "no numeric loop" in refused.reason


def test_without_numba_it_says_how_to_get_it(recorded, monkeypatch):
    monkeypatch.setattr(compiled_python, "find_spec", lambda name: None)
    assert FIX.unfit(recorded((0.5, 5, "blur"))) == "it needs numba: pip install flatout[numba]"


def test_the_bound_is_what_the_loops_take_in_the_steps_and_open_in_workers_and_between_epochs(recorded):
    both = recorded((0.5, 5, "blur"), (0.5, 19, "plain"))  # half of the host time, which is 30% of the step
    assert FIX.bound(both) == pytest.approx(1 / (1 - 1.5 * 0.5 * 0.3))
    assert FIX.bound(recorded((0.5, 5, "blur"))) == pytest.approx(1 / (1 - 0.3))
    assert FIX.bound(recorded((0.5, 5, "blur"), process="worker")) == math.inf
    assert FIX.bound(recorded((0.5, 5, "blur"), phase=Phase.EPOCH_GAP)) == math.inf
    assert FIX.bound(recorded()) == 1.0


@pytest.mark.parametrize(
    "value",
    [
        "../train.py:f", "/etc/x.py:f", "train.py:f(1)", "train.py", "train.py:f, ", "train.py:f\nx", "a/../b.py:f",
        "train.txt:f", 'train.py:f"', "train.py:__import__('os')",
    ],
)  # fmt: skip
def test_a_recipe_can_name_nothing_but_functions_of_the_script_s_files(value):
    assert not FUNCTIONS.holds(value)


@pytest.mark.parametrize("value", ["train.py:f", "my data/sets.py:A.f, train.py:f.<locals>.g", "a-b.py:A.__getitem__"])
def test_functions_are_named_by_file(value):
    assert FUNCTIONS.holds(value)


# -- what is served --------------------------------------------------------------------------------------------------
def selection(functions):
    return Selection("compiled-python", {"functions": functions})


def test_files_are_served_with_the_decorator(tmp_path):
    (tmp_path / "train.py").write_text(TEXT)
    (tmp_path / "data.py").write_text("def f():\n    pass\n")
    found = edited_files([selection("train.py:blur, data.py:f, gone.py:f")], [tmp_path])
    assert {file.path.rpartition("/")[2] for file in found.files} == {"train.py", "data.py"}
    assert found.dropped == {}
    (train,) = [file for file in found.files if file.path.endswith("train.py")]
    assert train.digest == hashlib.sha256(TEXT.encode()).hexdigest()
    assert train.text.count('@__import__("flatout").compiled\n') == 1


def test_compiled_functions_stand_on_top_of_an_edit_of_the_same_file(tmp_path):
    (tmp_path / "train.py").write_text(TEXT)
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    diff = "--- a/train.py\n+++ b/train.py\n@@ -4,1 +4,1 @@\n-    for y in range(9):\n+    for y in range(8):\n"
    edit = SourceEdit("mine", diff, {"train.py": digest}).selection
    (file,) = edited_files([selection("train.py:blur"), edit], [tmp_path]).files
    assert "range(8)" in file.text and "compiled\ndef blur" in file.text
    assert (file.edits, file.digest) == (("mine", "compiled-python"), digest)


def test_where_no_function_is_left_it_is_dropped_with_the_reason(tmp_path):
    (tmp_path / "train.py").write_text("x = 1\n")
    found = edited_files([selection("train.py:blur")], [tmp_path])
    assert found.files == ()
    assert found.dropped == {"compiled-python": "none of its functions is in the script's files any more"}
