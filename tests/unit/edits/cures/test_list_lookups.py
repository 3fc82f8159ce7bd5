"""Lookups in lists, through sets and dictionaries made once: the same values, errors and draws, or left."""

import random
import re

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
            sought = rows[at][1]
            if sought not in left:  # <<
                right.append((at, random.random()))
        at += 1
    return right
"""

SESSION = """\
import random
from torch.utils.data import Dataset

class Sessions(Dataset):
    def __init__(self, histories, num):
        self.histories = list(histories)
        self.num = num
        self.most = 9

    def __len__(self):
        return len(self.histories)

    def others(self, seen):
        out, tries = [], 0
        while len(out) < self.num and tries < 40:
            tries += 1
            item = random.randrange(-1, self.most)
            if item not in seen:  # <<
                out.append(item)
        return out

def weights(rows, seed):
    sessions = Sessions([[row[0] for row in rows], tuple(row[1] for row in rows)], 3)
    return [sessions.others(each) for each in sessions.histories]
"""

SEEN = """\
import random

def weights(rows, seed):
    seen, again, first = [], [], []
    for row, other in rows:
        if row not in seen:  # <<
            seen.append(row)  # each once
        else:
            first.append((seen.index(row), seen.count(other), random.random()))
        for each in (row, other):
            if each in seen:
                again.append(other)
                seen.append(other)
    return seen, again, first
"""

ANY = """\
import random

def weights(rows, seed):
    return ranked([row[0] for row in rows], tuple(row[1] for row in rows), len(rows))

def ranked(names, order, num):
    known = any(name in order for name in names)  # <<
    rare = {name: names.count(name) + num for name in sorted(set(names), key=repr)[:3] if name is not None}
    return known, {place: names.count(names[place]) for place in range(len(names))}, rare, random.random()
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

STYLES = [WEIGHTS, LOOP, ENCODED, WHILE, SAMPLER, GIVEN, SESSION, SEEN, ANY]
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
    assert len(plain) - len(kept) <= 3, "only the lines of the lookups are others"
    assert all(line in after for line in plain if line.strip().startswith(("#", "'''")))


@pytest.mark.parametrize("text", STYLES)
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES), max_size=12), st.integers(0, 9))
def test_values_errors_and_draws_are_the_same(changed, text, rows, seed):
    assert outcome(text, rows, seed) == outcome(changed[text], rows, seed)


@pytest.mark.parametrize("text", [LOOP, WHILE, SAMPLER, GIVEN, SESSION, SEEN, ANY])
@settings(max_examples=40, deadline=None)
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


@pytest.mark.parametrize("text", [WEIGHTS, WHILE, GIVEN, SEEN, SESSION])
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
                both = row + other
                if both in seen:  # <<
                    yield seen.index(both), seen.count(row)
"""
    after, left = made(tmp_path, text)
    assert left == ""
    lines = after.split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("        for row in rows:"))
    assert [line.split(" = ")[0].strip() for line in lines[at - 6 : at]] == [
        "plain_seen", "set_of_seen", "places_of_seen", "from collections import Counter", "counts_of_seen",
        "types_of_seen",
    ]  # fmt: skip
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
        ("seen = []\n        for r in rows:\n            if r in seen:  # <<\n                seen.append(r + 1)",
         "seen is changed in the loop"),
        ("seen = list(rows)\n        for r in rows:\n            seen[0] = r in seen  # <<", "changed in the loop"),
        ("seen = list(rows)\n        for r in rows:\n            n = r in seen  # <<\n            del seen[0]",
         "changed in the loop"),
        ("seen = list(rows)\n        for r in rows:\n            n = r in seen  # <<\n            seen = seen + [r]",
         "in other hands"),
        ("seen = list(rows)\n        for r in rows:\n            n = r in seen  # <<\n            random.shuffle(seen)",
         "seen may be changed by what has it from line 16"),
        ("seen = list(rows)\n        other = seen\n        for r in rows:\n            model(r in seen)  # <<",
         "seen may be changed by what has it from line 14"),
        ("seen = list(rows)\n        model.keep(seen)\n        for r in rows:\n            n = r in seen  # <<\n"
         "            model(r)", "seen may be changed by what has it from line 14"),
        ("for r in rows:\n            n = r in self.given  # <<\n            model(r)", "self.given is in other hands"),
        ("for r in rows:\n            n = r in self.words  # <<\n            self = model", "in other hands"),
        ("for r in rows:\n            n = r in model.words  # <<", "model.words is in other hands"),
        ("if model:\n            seen = list(rows)\n        for r in rows:\n            if model and r in seen:  # <<\n"
         "                print(r)", "may not be there before the loop"),
        ("for r in rows:\n            n = r in model  # <<\n            yield n", "model is in other hands"),
        ("for r in unknown(rows):\n            n = r in model  # <<", "model is in other hands"),
        ("seen = list(rows)\n        for r in rows:\n            n = r[0] in seen  # <<", "has no name"),
        ("return (r for r in rows if r in self.words)  # <<", "are not found here"),
        ("return sorted(rows, key=lambda r: self.words.index(r))  # <<", "are not found here"),
        ("return model in self.words  # <<", "are not found here"),
        ("return [(r, 1) in self.words for r in rows]  # <<", "are not found here"),
        ("return [f'{self.words.index(r)}' for r in rows]  # <<", "are not found here"),
        ("seen = ['a', 'b']\n        return [r in seen for r in rows]  # <<", "are not found here"),
        ("seen = {r: 1 for r in rows}\n        return [r in seen for r in rows]  # <<", "are not found here"),
        ("seen, type = list(rows), 3\n        return [r in seen for r in rows]  # <<", "type may have another meaning"),
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
        "seen = ' '.join(rows).split()\n        return {r: seen.index(r) for r in rows}  # <<",
        "seen: list[int] = [r for r in rows]\n        n = [r in seen for r in rows]  # <<\n"
        "        return model(n, seen)",
        "for r in rows:\n            seen = sorted(r)\n            n = [x in seen for x in rows]  # <<\n"
        "            self.keep(seen, n)",
        "seen = []\n        for r in rows:\n            if r not in seen:  # <<\n                seen.append(r)\n"
        "                model(r)",
    ],
)
def test_a_list_that_nobody_else_holds_outlasts_whatever_is_called(tmp_path, body):
    after, left = made(tmp_path, BODY.replace("HERE", body))
    assert left == ""
    assert " if type(" in after and " in types_of_seen" in after


@pytest.mark.parametrize(
    "body",
    [
        "return [self.words.count(r) / 2 for r in self.words]  # <<",
        "for r in self.words:\n            n = self.words.count(r)  # <<",
        "return [KINDS.index(r) for r in rows if r in KINDS]  # <<",
        "kept = []\n        for r in rows:\n            kept.append(r in model)  # <<\n        return kept",
        "self.kept = unknown([rows.count(r) for r in enumerate_not_called] if 0 else rows, 1)\n"
        "        return [model.count(x) for i, x in enumerate(model)]  # <<",
        "if any(r in KINDS for r in rows):  # <<\n            return model",
    ],
)
def test_a_list_of_others_stays_where_nothing_runs_but_plain_operations(tmp_path, body):
    after, left = made(tmp_path, BODY.replace("HERE", body))
    assert left == ""
    assert re.search(r"plain_\w+ = type\(", after)
    assert "types_of_" not in after, "what is sought is plain, too"


def test_what_a_file_calls_a_counter_is_used_where_it_is_imported_above_alone(tmp_path):
    above = "import collections\n" + WEIGHTS
    assert "= collections.Counter(groups" in made(tmp_path, above)[0]
    below = WEIGHTS + "from collections import Counter\n"
    assert "    from collections import Counter as Counter_2\n" in made(tmp_path, below)[0]
    inner = WEIGHTS + "def f(x):\n    from collections import Counter\n    return Counter(x)\n"
    for text in (above, below, inner):
        after = made(tmp_path, text)[0]
        rows = [(0, 1), (0, 2), (1, 2)]
        assert outcome(text, rows, 1) == outcome(after, rows, 1) != outcome(text, rows[1:], 1)


def test_new_names_are_of_functions_alone(tmp_path):
    text = "NAMES = [str(k) for k in range(9)]\nhits = 0\nfor k in NAMES:\n    hits += NAMES.count(k)  # <<\n"
    after, left = made(tmp_path, text)
    assert after == "" and "new variables of a module would be seen" in left


def test_what_a_loop_goes_through_and_what_it_appends_to_are_told_apart(tmp_path):
    text = """\
def f(rows):
    seen = [1]
    for r in [x for x in rows if x not in seen]:  # <<
        if r not in seen:
            seen.append(r)
    return seen
"""
    after, left = made(tmp_path, text)
    assert left == "" and after.count(" = set(seen if ") == 2 and after.count(".add(r)") == 1
    space = {}
    exec(after, space)
    assert space["f"]([2, 2, 1, 3, 2]) == [1, 2, 3]
