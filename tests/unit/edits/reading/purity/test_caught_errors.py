"""Errors that may be caught, so that a script goes on without what raised them."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.purity.caught_errors import caught_at


def caught(folder, text, **files):
    project = project_of(folder, train="import contextlib, sys, torch\n" + text, **files)
    source, statement = next(
        (source, node) for source, node in project.nodes(ast.Assign) if ast.unparse(node) == "a = b"
    )
    return caught_at(project, source, statement)


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    a = b\nexcept ValueError:\n    pass",
        "try:\n    a = b\nexcept:\n    raise",
        "try:\n    a = b\nexcept* ValueError:\n    pass",
        "from x import KeyboardInterrupt\ntry:\n    a = b\nexcept KeyboardInterrupt:\n    pass",
        "for x in y:\n    try:\n        a = b\n    finally:\n        continue",
        "def f():\n    a = b\ntry:\n    f()\nexcept Exception:\n    pass",
        "def f():\n    a = b\ndef g():\n    return f()\ntry:\n    x = g()\nexcept Exception:\n    pass",
        "class C:\n    def f(self):\n        a = b\ntry:\n    C().f()\nexcept Exception:\n    pass",
        "with contextlib.suppress(ValueError):\n    a = b",
        "with stack:\n    a = b",
        "with torch.no_grad(), stack:\n    a = b",
        "def f():\n    a = b",
        "def f():\n    a = b\nrun(f)",
        "def f():\n    a = b\nx = lambda: f()",
        "def f():\n    a = b\nx = (f() for _ in y)",
        "def f():\n    a = b\nclass C:\n    x = f()",
        "def f():\n    a = b\ndef g(x=f()):\n    pass\ng()",
        "def f():\n    a = b\nasync def g():\n    f()\nasyncio.run(g())",
        "def f():\n    a = b\ndef g():\n    yield f()\nlist(g())",
        "class A:\n    def __getattr__(self, name):\n        a = b",
    ],
)
def test_who_may_go_on(tmp_path, text):
    assert "train.py:" in caught(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "a = b",
        "try:\n    a = b\nexcept KeyboardInterrupt:\n    pass",
        "try:\n    a = b\nfinally:\n    c = 1",
        "def f():\n    a = b\nf()",
        "def f():\n    a = b\n    f()\nx = [f() for _ in y]",
        "class C:\n    def f(self):\n        if x:\n            a = b\ndef g():\n    C().f()\ng()",
        "with torch.no_grad():\n    a = b",
        "with torch.autocast('cpu'):\n    a = b",
    ],
)
def test_what_ends_the_script(tmp_path, text):
    assert caught(tmp_path, text) == ""


def test_what_runs_while_a_file_is_imported(tmp_path):
    assert "the module's import" in caught(tmp_path, "import lib\n", lib="a = b\n")
    assert caught(tmp_path, "import lib\nlib.f()\n", lib="def f():\n    a = b\n") == ""
