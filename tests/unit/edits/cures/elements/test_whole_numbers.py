"""Whole numbers of Python's own, as far as the text shows."""

import ast

import pytest
from tests.unit.edits.scripts import project_of

from flatout.edits.cures.elements.function_loops import LoopsOf
from flatout.edits.cures.elements.whole_numbers import Numbers

BEFORE = """
WIDTH = 4
LETTERS = "ACGT"
CODES = {"A": 0, "B": 1}
PLACES = {letter: place for place, letter in enumerate(LETTERS)}
MIXED = {"A": 0, "B": True}
CHANGED = {"A": 0}
CHANGED["A"] = True
LENT = {"A": 0}
print(sorted(LENT), change(LENT))


def code(word):
    number = 0
    for letter in word:
        number = number * WIDTH + LETTERS.index(letter)
    return number


def maybe(word):
    if word:
        return 3


def f(given, words, flag=1):
    total, near, gone = 0, 0.5, 0
    total += len(words)
    for n, (word, k) in enumerate(zip(words, range(5))):
        total = total + k
        gone = word
        near += n / 2
        ASKED
"""


def asked(folder, text):
    project = project_of(folder, train=BEFORE.replace("ASKED", text))
    source = project.script
    scope = source.tree.body[-1]
    return Numbers(LoopsOf(project, source, scope)), scope.body[-1].body[-1].value


@pytest.mark.parametrize(
    "text",
    ["3", "-3", "n", "k", "total", "n + 2 * k", "n // 2", "-1 - n", "len(words)", "int(word)", "ord(word)", "WIDTH",
     "LETTERS.index(word)", '"AB".find(word)', "CODES[word]", "PLACES[word]", "CODES.get(word, 0)", "code(word)",
     "min(n, k, 3)", "n if word else 0", "total % 7"],
)  # fmt: skip
def test_whole_numbers(tmp_path, text):
    numbers, node = asked(tmp_path, text)
    assert numbers.is_whole(node) and numbers.is_real(node)


@pytest.mark.parametrize(
    "text",
    ["True", "1.0", "n / 2", "word", "given", "flag", "gone", "near", "given.index(word)", "CODES.get(word)",
     "MIXED[word]", "CHANGED[word]", "LENT[word]", "maybe(word)", "words[0]", "unknown", "not n", "n ** 2", "n == 2",
     "min(word)", "max(words, key=n)", "word % 3", "code", "CODES", "CODES[1:2]"],
)  # fmt: skip
def test_what_may_be_something_else(tmp_path, text):
    numbers, node = asked(tmp_path, text)
    assert not numbers.is_whole(node)


def test_numbers_that_run_no_code(tmp_path):
    for text in ("n", "WIDTH * n - 1", "-k"):
        numbers, node = asked(tmp_path, text)
        assert numbers.is_counted(node)
    for text in ("len(words)", "code(word)", "CODES[word]", "n + int(word)", "word"):
        numbers, node = asked(tmp_path, text)
        assert not numbers.is_counted(node)


def test_numbers_with_a_fraction_and_texts(tmp_path):
    for text in ("near", "near + n / 3", "float(word)", "0.5"):
        numbers, node = asked(tmp_path, text)
        assert numbers.is_real(node)
    numbers, node = asked(tmp_path, "LETTERS")
    assert numbers.is_text(node) and not numbers.is_text(ast.Constant(3))


def test_a_table_that_another_file_may_change(tmp_path):
    assert asked(tmp_path, "CODES[word]")[0].loops
    other = "from train import CODES\nCODES['A'] = True\n"
    project = project_of(tmp_path, train="import other\n" + BEFORE.replace("ASKED", "CODES[word]"), other=other)
    scope = project.script.tree.body[-1]
    assert not Numbers(LoopsOf(project, project.script, scope)).is_whole(scope.body[-1].body[-1].value)
