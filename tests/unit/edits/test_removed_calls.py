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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import gc\nfor x in l:\n    gc.collect(next(n))\n", "what gc.collect() is given"),
        ("import gc\nfor x in l:\n    gc.collect(7)\n", "what gc.collect() is given"),
        ("import gc\nfor x in l:\n    gc.collect()\n    f()\nfrom weakref import ref\n", "weakref"),
        ("import gc\nfor x in l:\n    gc.collect()\nclass A:\n    def __del__(self):\n        print(1)\n", "__del__"),
        ("import gc\nfor x in l:\n    gc.collect()\ngc.collect = f\n", "is set to something else"),
        ("import gc\nfor x in l:\n    gc.collect()\nsetattr(gc, 'collect', f)\n", "may set gc.collect"),
        ("import gc\nfor x in l:\n    gc.collect()\ngc.callbacks.append(f)\n", "callbacks"),
        ("import gc, torch\nfor x in l:\n    gc.collect()\n    print(torch.cuda.memory_allocated())\n", "memory_all"),
    ],
)
def test_collections_that_somebody_may_see_stay(tmp_path, text, reason):
    code, done = without(tmp_path, text)
    assert code == text
    assert reason in done.left[0]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("import torch\nfor x in l:\n    torch.cuda.synchronize(q.pop())\n", 3, "is given"),
        ("import torch\ntry:\n    torch.cuda.synchronize()\nexcept Exception:\n    n = 0\n", 3, "might be caught"),
        ("import torch\ntry:\n    f()\nexcept RuntimeError:\n    torch.cuda.empty_cache()\n", 5, "after an error"),
        ("import torch\nfor x in l:\n    torch.cuda.synchronize()\n    t = time()\n", 3, "is timed"),
        (
            "import torch\nfor x in l:\n    torch.cuda.synchronize()\n    y = x.to('cpu', non_blocking=True)\n",
            3,
            "may have to be waited for",
        ),
        ("import torch\nfor x in l:\n    torch.cuda.synchronize()\ns = torch.cuda.Stream()\n", 3, "Stream"),
    ],
)
def test_waiting_that_something_may_need_stays(tmp_path, text, line, reason):
    code, done = without(tmp_path, text, line, ("torch.cuda.synchronize", "torch.cuda.empty_cache"))
    assert code == text
    assert reason in done.left[0]
