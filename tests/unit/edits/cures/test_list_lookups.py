"""Lookups in lists, through sets and dictionaries made once: the same values, errors and draws, or left."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.edits.scripts import edited

WEIGHTS = """\
import random

def weights(rows, seed):
    '''Weigh rows by how seldom their group is.'''
    groups = [row[0] for row in rows]
    # rare groups count more
    return [1.0 / groups.count(g) for g in groups]  # <<
"""

LOOP = """\
import random
from collections import Counter

def weights(rows, seed):
\tgroups, w = list(row[0] for row in rows), []
\tfor g in groups:  # each of them
\t\tw.append(random.random() / groups.count(g))  # <<
\treturn w
"""

ENCODED = """\
import random

class Words:
    def __init__(self, words):
        self.words = sorted(set(words), key=repr)
        self.known = list(words)

    def encode(self, text):
        return [self.words.index(word) for word in text if word in self.known]

    def __getitem__(self, text):
        return self.encode(text)  # <<

def weights(rows, seed):
    words = Words([row[0] for row in rows])
    return [words[[row[1] for row in rows]] for _ in range(2)]
"""

WHILE = """\
import random

def weights(rows, seed):
    left, right = [], []
    for row in rows:
        left.append(row[0])
    at = 0
    while at < len(rows):
        for _ in range(2):
            if rows[at][1] not in left:  # <<
                right.append((at, random.random()))
        at += 1
    return right
"""

MODULE = """\
import random
ROWS = random.sample(range(60), 50)
NAMES = [str(row % 20) for row in ROWS]
FIRST = []
for row in range(30):
    if str(row) in NAMES:  # <<
        FIRST.append(NAMES.index(str(row)))
RARE = {name for name in NAMES if NAMES.count(name) == 1}

def weights(rows, seed):
    return FIRST, RARE, any(name not in NAMES for name in map(str, rows)), random.random()
"""

SAMPLER = """\
import random

class Sampler:
    classes = ["a", "b"] * 5

    def __init__(self, labels, seed):
        self.labels, self.rng = list(labels), random.Random(seed)

    def __iter__(self):
        counts = [self.labels.count(label) for label in self.labels]  # <<
        order = self.rng.choices(range(len(counts)), [1 / count for count in counts], k=9)
        yield from order

def weights(rows, seed):
    return [list(Sampler([row[0] for row in rows] or [1], seed)) for _ in range(2)]
"""

GIVEN = """\
import random

def weights(rows, seed):
    return taken([row[1] for row in rows], tuple(row[0] for row in rows))

def taken(values, seen):
    return sum(value in seen for value in values), [seen.count(v) for v in values]  # <<
"""

STYLES = [WEIGHTS, LOOP, ENCODED, WHILE, MODULE, SAMPLER, GIVEN]
NAN = float("nan")
VALUES = st.sampled_from(
    [0, 1, 2, 3, True, False, 1.0, 0.0, -0.0, 2.5, NAN, float("nan"), "a", "b", "1", "", None, (1,), (1.0,), 2**70]
)


def made(folder, text):
    return edited(folder, "list-lookups", text)


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Return the styles as they are changed."""
    return {text: made(tmp_path_factory.mktemp("style"), text)[0] for text in STYLES}


def outcome(text, rows, seed):
    """Return what a script gives, or the error, with the state of the random generator behind it."""
    random.seed(seed)
    space = {}
    try:
        exec(compile(text, "train.py", "exec"), space)
        found = space["weights"](rows, seed)
    except Exception as error:  # an unhashable value, a word that is not there
        found = (type(error), str(error))
    return repr(found), random.getstate()


@pytest.mark.parametrize("text", STYLES)
def test_every_style_is_done_and_nothing_else_is_touched(tmp_path, text):
    after, left = made(tmp_path, text)
    assert left == ""
    assert "{*map(type, " in after
    plain = text.replace("  # <<", "").split("\n")
    kept = [line for line in plain if line in after.split("\n")]
    assert len(plain) - len(kept) <= 2, "only the lines of the lookups are others"
    assert all(line in after for line in plain if line.strip().startswith(("#", "'''")))


@pytest.mark.parametrize("text", STYLES)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), max_size=12), st.integers(0, 9))
def test_values_errors_and_draws_are_the_same(changed, text, rows, seed):
    assert outcome(text, rows, seed) == outcome(changed[text], rows, seed)


@pytest.mark.parametrize("text", [LOOP, WHILE, SAMPLER, GIVEN])
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=40), st.integers(0, 9))
def test_many_of_one_kind(changed, text, rows, seed):
    assert outcome(text, rows, seed) == outcome(changed[text], rows, seed)


class _Odd:
    """Equal to all, with a hash of its own: a list finds it, and a set does not."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 7

    def __repr__(self):
        return "odd"


@pytest.mark.parametrize("text", [WEIGHTS, WHILE, GIVEN])
def test_values_whose_hash_says_less_than_equality_are_looked_up_in_the_list(tmp_path, text):
    import numpy
    import torch

    after, _ = made(tmp_path, text)
    for odd in (_Odd(), torch.tensor(1), numpy.float32(0.1), numpy.int64(1), numpy.str_("a")):
        for rows in ([(odd, 1)], [(1, odd), (2, odd)], [(0.1, odd), ("a", odd), (odd, 1)]):
            assert outcome(text, rows, 1) == outcome(after, rows, 1)


def test_other_things_than_lists_stay_what_they_are(tmp_path):
    import numpy
    import torch

    text = """
def taken(values, seen):
    return [v in seen for v in values]  # <<
"""
    after, _ = made(tmp_path, text)
    for seen in (
        "abcab",
        {"a": 1},
        {"a"},
        numpy.array([1, 2, 2]),
        torch.tensor([1, 2]),
        range(5),
        (1, "a"),
        [[1], [2]],
    ):
        values = ["a", "ca"] if isinstance(seen, str) else ["a", 1, 2, 7]
        found = []
        for code in (text, after):
            space = {}
            exec(code, space)
            try:
                found.append(space["taken"](values, seen))
            except Exception as error:
                found.append((type(error), str(error)))
        assert found[0] == found[1]


def test_it_is_made_before_the_outermost_loop_that_it_outlasts(tmp_path):
    text = """\
def f(rows, n):
    for turn in range(n):
        seen = [row * turn for row in rows]
        for row in rows:
            for other in rows:
                if (row + other) in seen:  # <<
                    yield seen.index(row + other), seen.count(row)
"""
    after, left = made(tmp_path, text)
    assert left == ""
    lines = after.split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("        for row in rows:"))
    assert [line.split(" = ")[0].strip() for line in lines[at - 4 : at]] == [
        "set_of_seen", "places_of_seen", "counts_of_seen", "types_of_seen",
    ]  # fmt: skip
    assert "import collections" in after
    spaces = ({}, {})
    for code, space in zip((text, after), spaces, strict=True):
        exec(code, space)
    assert list(spaces[0]["f"]([1, 2, 3, 1], 4)) == list(spaces[1]["f"]([1, 2, 3, 1], 4))


BODY = """\
import random
KINDS = ["a"] * 9
def change(x):
    x.append(1)
class Data:
    def __init__(self, words, given):
        self.words = list(words)
        self.given = given
        self.more = list(given)
    def add(self, word):
        self.more.append(word)
    def look(self, rows, model):
        HERE
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("seen = []; [seen.append(r) for r in rows if r not in seen]  # <<", "seen is changed in the loop"),
        ("seen = []\n        for r in rows:\n            if r in seen:  # <<\n                continue\n"
         "            seen.append(r)", "seen is changed in the loop"),
        ("seen = list(rows)\n        for r in rows:\n            seen[0] = r in seen  # <<", "changed in the loop"),
        ("seen = list(rows)\n        for r in rows:\n            n = r in seen  # <<\n            del seen[0]",
         "changed in the loop"),
        ("seen = list(rows)\n        for r in rows:\n            n = r in seen  # <<\n            seen = seen + [r]",
         "changed in the loop"),
        ("seen = list(rows)\n        for r in rows:\n            n = r in seen  # <<\n            random.shuffle(seen)",
         "changed in the loop"),
        ("seen = list(rows)\n        other = seen\n        for r in rows:\n            n = r in seen  # <<\n"
         "            other.append(r)", "may be changed by other.append()"),
        ("seen = list(rows)\n        model.keep(seen)\n        for r in rows:\n            n = r in seen  # <<\n"
         "            model(r)", "may be changed by model()"),
        ("seen = list(rows)\n        def put(x):\n            seen.append(x)\n        for r in rows:\n"
         "            n = r in seen  # <<\n            put(r)", "may be changed by put()"),
        ("for r in rows:\n            n = r in self.given  # <<\n            model(r)",
         "self.given may be changed by model()"),
        ("for r in rows:\n            n = r in self.more  # <<\n            self.add(r)",
         "self.more may be changed by self.add()"),
        ("for r in rows:\n            n = r in self.words  # <<\n            self.words.append(r)",
         "changed in the loop"),
        ("for r in rows:\n            n = r in self.words  # <<\n            self = model", "self is bound anew"),
        ("for r in rows:\n            n = r in model.words  # <<\n            model(r)", "may not be there before"),
        ("for r in rows:\n            n = r in self.nowhere  # <<", "where self.nowhere comes from is not seen"),
        ("if model:\n            seen = list(rows)\n        for r in rows:\n            if model and r in seen:  # <<\n"
         "                print(r)", "may not be there before the loop"),
        ("for r in rows:\n            n = r in model  # <<\n            yield n", "may be changed by (yield n)"),
        ("for r in unknown(rows):\n            n = r in model  # <<", "may be changed by unknown()"),
        ("seen = list(rows)\n        for r in rows:\n            match r:\n                case [*seen]:\n"
         "                    pass\n            n = r in seen  # <<", "is not seen"),
        ("seen = list(rows)\n        for r in rows:\n            try:\n                n = r in seen  # <<\n"
         "            except ValueError as seen:\n                pass", "is not seen"),
        ("global kept\n        kept = list(rows)\n        for r in rows:\n            n = r in kept  # <<",
         "is not seen"),
        ("return (r for r in rows if r in self.words)  # <<", "are not found here"),
        ("return sorted(rows, key=lambda r: self.words.index(r))  # <<", "are not found here"),
        ("return model in self.words  # <<", "are not found here"),
        ("return [(r, 1) in self.words for r in rows]  # <<", "are not found here"),
        ("return [f'{self.words.index(r)}' for r in rows]  # <<", "are not found here"),
        ("seen = ['a', 'b']\n        return [r in seen for r in rows]  # <<", "are not found here"),
        ("seen = {r: 1 for r in rows}\n        return [r in seen for r in rows]  # <<", "are not found here"),
        ("seen, type = list(rows), 3\n        return [r in seen for r in rows]  # <<", "type has another meaning"),
    ],
)  # fmt: skip
def test_a_list_that_may_change_or_not_be_there_is_left(tmp_path, body, reason):
    after, left = made(tmp_path, BODY.replace("HERE", body))
    assert after == ""
    assert reason in left


@pytest.mark.parametrize(
    "body",
    [
        "seen = list(rows)\n        for r in rows:\n            model(r, r in seen)  # <<\n            self.add(r)",
        "seen = list(rows)\n        for r in rows:\n            yield r in seen  # <<",
        "for r in rows:\n            self.add(r in self.words)  # <<",
        "for r in rows:\n            model(r in KINDS)  # <<",
        "kept = []\n        for r in rows:\n            kept.append(r in model)  # <<",
        "for r in model.words:\n            n = model.words.count(r)  # <<",
        "seen = ' '.join(rows).split()\n        return {r: seen.index(r) for r in rows}  # <<",
    ],
)
def test_a_list_that_nobody_else_holds_outlasts_whatever_is_called(tmp_path, body):
    after, left = made(tmp_path, BODY.replace("HERE", body))
    assert left == ""
    assert " if type(r) in types_of_" in after


def test_a_change_in_another_file_counts(tmp_path):
    from tests.unit.edits.scripts import project_of

    from flatout.edits.reading.unchanged_lists import ListUse

    text = "from other import grow\nNAMES = list('abcdefghij')\ndef f(rows):\n    return [r in NAMES for r in rows]\n"
    for other, reason in (("def grow(): pass\n", ""), ("from train import NAMES\ndef grow(): NAMES.append(1)\n", "")):
        project = project_of(tmp_path, train=text, other=other)
        source = project.script
        statement = source.tree.body[2].body[0]
        held = statement.value.elt.comparators[0]
        use = ListUse(project, source, held)
        assert use.is_list and use._is_dynamic is ("NAMES" in other)
        assert use.changed_in([statement], statement) == reason, "nothing is called there"
