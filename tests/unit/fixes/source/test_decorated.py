"""The text of a file with compiled functions: a decorator above each `def`, and all else as it was."""

import ast

import pytest

from flatout.fixes.source.decorated import decorated, definitions, named_functions

LINE = '@__import__("flatout").compiled'


def test_functions_are_found_by_the_names_that_python_gives_them():
    text = "def f():\n    def g(): pass\nclass A:\n    def f(self): pass\n    class B:\n"
    text += "        async def h(self): pass\nif x:\n    def k(): pass\n"
    assert [name for name, _ in definitions(ast.parse(text))] == ["f", "f.<locals>.g", "A.f", "A.B.h", "k"]


def test_the_setting_names_functions_by_file():
    found = named_functions("train.py:blur, data/sets.py:Photos.blur, train.py:f.<locals>.g")
    assert found == {"train.py": ["blur", "f.<locals>.g"], "data/sets.py": ["Photos.blur"]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\n\ndef f():\n    pass\n", f"\n{LINE}\ndef f():\n    pass\n"),
        ("x = 1\ndef f():\n    pass\n", f"x = 1\n{LINE}\ndef f():\n    pass\n"),
        ("def f():\n    pass", f"{LINE}\ndef f():\n    pass"),
        ("@a\n@b(\n 1)\ndef f():\n    pass\n", f"@a\n@b(\n 1)\n{LINE}\ndef f():\n    pass\n"),
        ("x = 1\r\n\r\ndef f():\r\n    pass\r\n", f"x = 1\r\n{LINE}\r\ndef f():\r\n    pass\r\n"),
        ("if x:\n\tdef f():\n\t\tpass\n", f"if x:\n\t{LINE}\n\tdef f():\n\t\tpass\n"),
        ("# a\n\nasync  def f(): pass\n", f"# a\n{LINE}\nasync  def f(): pass\n"),
        ("def f(): pass\ndef f(): pass\n", f"{LINE}\ndef f(): pass\n{LINE}\ndef f(): pass\n"),
    ],
)
def test_a_decorator_stands_next_to_the_function_and_on_a_blank_line_where_there_is_one(before, after):
    assert decorated(before, ["f"]) == after
    ast.parse(after)


@pytest.mark.parametrize(
    "text",
    [
        "def g(): pass\n", "", "if x: \\\n  def_ = 1\n", "x = '\x0c'\n\ndef f(): pass\n", "a = 1\rdef f(): pass\n",
        "f = lambda: 1\n", "class f: pass\n",
    ],
)  # fmt: skip
def test_a_file_without_the_function_or_with_lines_of_another_kind_stays_as_it_is(text):
    assert decorated(text, ["f"]) == text
