"""One file of the user's: what its names stand for, where things stand, and which files are left alone."""

import ast

import libcst
import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.reading.source_file import ModuleNames, read_source, span


def names(text, package=""):
    return ModuleNames(ast.parse(text), package)


@pytest.mark.parametrize(
    ("imports", "used", "dotted"),
    [
        ("import torch", "torch.utils.data.DataLoader", "torch.utils.data.DataLoader"),
        ("import torch.utils.data", "torch.optim.SGD", "torch.optim.SGD"),
        ("import torch.utils.data as tud", "tud.DataLoader", "torch.utils.data.DataLoader"),
        ("from torch.utils import data as d", "d.DataLoader", "torch.utils.data.DataLoader"),
        ("from torch.utils.data import DataLoader as DL", "DL", "torch.utils.data.DataLoader"),
        ("import torch", "other.thing", ""),
        ("import torch", "torch.f()", ""),
        ("import torch\ntorch = fake()", "torch.x", ""),
        ("import torch\ndef f(torch): pass", "torch.x", ""),
        ("from a import x\nfrom b import x", "x", ""),  # one of two things
        ("from a import x\nfrom a import x", "x", "a.x"),
    ],
)
def test_a_name_stands_for_what_was_imported_under_it(imports, used, dotted):
    assert names(imports).dotted(ast.parse(used, mode="eval").body) == dotted


@pytest.mark.parametrize(
    ("text", "dotted"),
    [("from . import rows", "pkg.sub.rows"), ("from .rows import x", "pkg.sub.rows.x"), ("from .. import x", "pkg.x")],
)
def test_relative_imports_start_from_the_package(text, dotted):
    assert dotted in names(text, "pkg.sub").imports.values()


CODE = """\
class Net:
    def forward(self, x):
        return [self.f(y) for y in x]
é = call("ü", other(1))
"""


@pytest.fixture
def source(tmp_path):
    return project_of(tmp_path, train=CODE).script


def test_places_count_characters(source):
    (call,) = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "other"]
    line, start, _, end = span(source, call)
    assert (line, source.lines[line - 1][start:end]) == (4, "other(1)")


def test_what_stands_around_a_node(source):
    call = next(n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "self.f")
    assert [type(each).__name__ for each in source.above(call)] == [
        "ListComp",
        "Return",
        "FunctionDef",
        "ClassDef",
        "Module",
    ]
    assert source.scope(call).name == "forward"
    assert ast.unparse(source.statement(call)).startswith("return [")
    assert source.scope(source.tree.body[0]) is source.tree
    assert source.at(call, "a fact") == "train.py:3: a fact"


@pytest.mark.parametrize("code", [b"def f(:\n", b"# coding: no-such\n", b"x = '\xe9'\n", b"x = 1\0\n"])
def test_what_is_no_python_is_refused(tmp_path, code):
    (tmp_path / "odd.py").write_bytes(code)
    with pytest.raises(SyntaxError):
        read_source(tmp_path / "odd.py", "odd.py")


def test_what_would_not_be_written_back_byte_for_byte_is_refused(tmp_path, monkeypatch):
    (tmp_path / "odd.py").write_bytes(b"x = 1\n")
    monkeypatch.setattr(libcst.Module, "bytes", b"x = 1\r\n")
    with pytest.raises(SyntaxError, match="its line endings are mixed"):
        read_source(tmp_path / "odd.py", "odd.py")


def test_lines_are_read_in_the_encoding_of_the_file(tmp_path):
    (tmp_path / "old.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\r\n")
    assert read_source(tmp_path / "old.py", "old.py").lines[1] == "x = '\xe9'"
