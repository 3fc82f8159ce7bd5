"""Calls that a loop is better without: their lines taken out, and nothing else."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.removed_calls import removed
from flatout.edits.rewrite import Unplaced


def without(folder, text, line=3, names=("gc.collect",)):
    project = project_of(folder, train=text)
    source = project.script
    statement = next(n for n in ast.walk(source.tree) if isinstance(n, ast.stmt) and n.lineno == line)
    done = removed(project, source, statement, names)
    return done.project.script.code.decode(), done


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import gc\nfor x in l:\n    gc.collect()\n    f(x)\n", "import gc\nfor x in l:\n    f(x)\n"),
        ("import gc\nfor x in l:\n    gc.collect()  # why\n", "import gc\nfor x in l:\n    pass  # why\n"),
        ("from gc import collect as c\nf()\nc(2)\n", "from gc import collect as c\nf()\n"),
        ("import gc\nif x: f()\nelse: gc.collect()\n", None),
    ],
)
def test_a_line_is_taken_out_and_a_block_keeps_one(tmp_path, before, after):
    if after is None:  # on the line of its `else`, where there is no line of its own
        with pytest.raises(Unplaced):
            without(tmp_path, before)
        return
    text, done = without(tmp_path, before)
    assert text == after
    assert (done.changed, done.left) == (1, ())


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("n = gc.collect()", ("gc.collect",)),
        ("collect()", ("gc.collect",)),
        ("print(1)", ("gc.collect", "torch.cuda.synchronize")),
    ],
)
def test_a_line_that_is_no_such_call_alone_is_left(tmp_path, line, names):
    text = f"import gc\nf()\n{line}\n"
    code, done = without(tmp_path, text, names=names)
    assert code == text
    wanted = " or ".join(f"{name}()" for name in names)
    assert done.left == (f"train.py:3: this line is not a call of {wanted} alone",)


def test_a_line_that_does_two_things_has_no_place(tmp_path):
    with pytest.raises(Unplaced):
        without(tmp_path, "import gc\nf()\ngc.collect(); f()\n")
