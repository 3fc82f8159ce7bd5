"""Changes of several files, imports where they belong, and settings in code."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.rewrite import Unplaced
from flatout.edits.written_edit import Context, after_head, root, with_changes, with_import


def imported(folder, text, module="flatout"):
    return with_import(project_of(folder, train=text), 0, module).script.code.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import os\nimport torch\n", "import os\nimport flatout\nimport torch\n"),
        ("import os\nfrom torch.nn import Linear\n", "import os\nimport flatout\nfrom torch.nn import Linear\n"),
        ("import os\nx = 1\n", "import flatout\nimport os\nx = 1\n"),
        ('"""Trains."""\nx = 1\n', '"""Trains."""\nimport flatout\nx = 1\n'),
        ("import flatout\nx = 1\n", "import flatout\nx = 1\n"),
        ("import torch as t\n", "import flatout\nimport torch as t\n"),
        ("from .torch import x\n", "import flatout\nfrom .torch import x\n"),
    ],
)
def test_an_import_stands_before_torchs(tmp_path, before, after):
    assert imported(tmp_path, before) == after


def test_a_name_that_stands_for_something_else_takes_no_import(tmp_path):
    with pytest.raises(Unplaced):
        imported(tmp_path, "flatout = 3\n")


def test_an_import_inside_a_function_is_no_import_of_the_file(tmp_path):
    text = "def f():\n    import flatout\n"
    assert imported(tmp_path, text) == f"import flatout\n{text}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("import os\n", (1, False)),
        ('"""Doc."""\nimport os\n', (1, True)),
        ('"""Doc."""\nfrom __future__ import annotations\nimport os\n', (2, True)),
        ("from __future__ import annotations\n", (1, True)),
        ("3\n", (1, True)),  # as a docstring stands
    ],
)
def test_the_head_of_a_file_is_its_docstring_and_what_it_asks_of_the_future(tmp_path, text, place):
    found = after_head(project_of(tmp_path, train=text).script)
    assert found == place


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("import torch.nn as nn", "torch"),
        ("import os, torch", "os"),
        ("from torch.utils import data", "torch"),
        ("from . import x", ""),
        ("x = 1", ""),
    ],
)
def test_the_package_that_an_import_begins_with(text, package):
    assert root(ast.parse(text).body[0]) == package


def test_settings_stand_in_code():
    context = Context(settings={"workers": 4, "on": True}, loaders=())
    assert context.code("f({workers}, {on}, {model})", model="net") == "f(4, True, net)"


def doubled(statement, module):
    return [statement, statement]


def test_changes_of_two_files_are_made_together(tmp_path):
    project = project_of(tmp_path, train="import rows\nx = 1\n", rows="y = 2\n")
    train, rows = project.sources
    changed = with_changes(project, lines=[(train, 2, doubled), (rows, 1, doubled)])
    assert [source.code for source in changed.sources] == [b"import rows\nx = 1\nx = 1\n", b"y = 2\ny = 2\n"]
    with pytest.raises(Unplaced):
        with_changes(project, lines=[(train, 2, doubled), (train, 2, doubled)])
    assert with_changes(project) is project
