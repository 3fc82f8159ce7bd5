"""Errors that are caught, so that a script goes on without what raised them."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.error_handlers import caught_at, seen_around


def caught(folder, text):
    project = project_of(folder, train="import contextlib, sys\n" + text)
    statement = next(
        node for node in ast.walk(project.script.tree) if isinstance(node, ast.Assign) and ast.unparse(node) == "a = b"
    )
    return caught_at(project, project.script, statement)


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    a = b\nexcept ValueError:\n    pass",
        "try:\n    a = b\nexcept:\n    c = 1",
        "for x in y:\n    try:\n        if x:\n            a = b\n    except (SystemExit, OSError):\n        continue",
        "def f():\n    a = b\ntry:\n    f()\nexcept Exception:\n    pass",
        "def f():\n    a = b\ndef g():\n    return f()\ntry:\n    x = g()\nexcept Exception:\n    pass",
        "class C:\n    def f(self):\n        a = b\ntry:\n    C().f()\nexcept Exception:\n    pass",
        "with contextlib.suppress(ValueError):\n    a = b",
        "class C:\n    def __exit__(self, *error):\n        return True\nwith C():\n    a = b",
        "def c():\n    try:\n        yield\n    except ValueError:\n        pass\nwith c():\n    a = b",
    ],
)
def test_who_goes_on(tmp_path, text):
    assert "train.py:" in caught(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "a = b",
        "try:\n    a = b\nexcept KeyboardInterrupt:\n    pass",
        "try:\n    a = b\nexcept ValueError as error:\n    print(error)\n    raise",
        "try:\n    a = b\nexcept ValueError:\n    sys.exit(1)",
        "try:\n    a = b\nfinally:\n    c = 1",
        "try:\n    c = 1\nexcept ValueError:\n    a = b",
        "try:\n    c = 1\nexcept ValueError:\n    pass\nelse:\n    a = b",
        "def f():\n    a = b\nf()",
        "class C:\n    def __exit__(self, *error):\n        self.x = 1\n        return False\nwith C():\n    a = b",
        "with torch.no_grad():\n    a = b",
    ],
)
def test_what_ends_the_script(tmp_path, text):
    assert caught(tmp_path, text) == ""


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("if a:", ""),
        ("with torch.no_grad(), open(p) as f:", ""),
        ("with torch.cuda.stream(side):", "may end an error"),
        ("with suppress(ValueError):", "may end an error"),
        ("with lock:", "may end an error"),
        ("try:", "may be caught"),
        ("class A:", "body of a class"),
    ],
)
def test_what_goes_on_around_a_loop_after_an_error(tmp_path, head, reason):
    tail = "except ValueError:\n    pass\n" if head == "try:" else ""
    source = project_of(tmp_path, train=f"import torch\n{head}\n    for x in xs:\n        f(x)\n{tail}").script
    loop = next(each for each in ast.walk(source.tree) if isinstance(each, ast.For))
    found = seen_around(source, loop)
    assert (reason in found) if reason else not found
