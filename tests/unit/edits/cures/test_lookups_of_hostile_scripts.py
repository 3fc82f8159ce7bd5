"""List lookups in scripts that change a list in ways which its name does not show (`edits/cures/list_lookups.py`).

Each script is legal, and has a place where its hostile part stands. Without that part the edit is made, so that nothing
but the part keeps it from being made; and where it is made in spite of a part, the script prints the same.
"""

import io
import random
from contextlib import redirect_stdout

import pytest
from tests.unit.edits.scripts import edited

OWN = """\
import operator, random, re, sys, types
import torch

class Sink:
    def __init__(self):
        self.box = None
    def __radd__(self, other):
        self.box = other
        return [1]
    def __eq__(self, other):
        self.box = other
        return False
    def put(self, x):
        if self.box is not None:
            self.box.append(x)
    __hash__ = None

def each(function, *items):
    for item in items:
        function(item)

def run(rows, sink):
    FIRST
    out = []
    for r in rows:
        out.append(r in seen)  # <<
        INSIDE
    AFTER
    return out

print(run("abxyzxya", Sink()))
"""

MADE = "seen = list('abc')"

OF_OWN = {
    "nothing": (MADE, "sink.put(r)", "pass"),
    "handed on at the end": (MADE, "sink.put(r)", "sink.box = seen"),
    "returned": (MADE, "sink.put(r)", "return seen, out"),
    "appended to": (MADE, "seen.append(r)", "pass"),
    "appended to in some turns": (
        MADE,
        "if r > 'x':\n            seen.append(r)\n        for k in 'xyz':\n"
        "            out.append(k in seen)\n            if r == k:\n                seen.append(k)",
        "pass",
    ),
}

AGAINST_OWN = {
    "method kept": (MADE + "; push = seen.append", "push(r)", "pass"),
    "method given": (MADE, "each(seen.append, r)", "pass"),
    "method by keyword": (MADE, "sorted([r], key=seen.append)", "pass"),
    "method mapped": (MADE, "[*map(seen.append, r)]", "pass"),
    "method in a tuple": (MADE + "; pair = (1, seen.append)", "pair[1](r)", "pass"),
    "two names at once": ("seen = kept = list('abc')", "kept.append(r)", "pass"),
    "second name": ("kept = list('abc'); seen = kept", "kept.append(r)", "pass"),
    "third name": (MADE + "; kept = seen", "kept.append(r)", "pass"),
    "name in a test": (MADE, "(kept := seen).append(r)", "pass"),
    "name of a loop": (MADE, "for kept in [seen]:\n            kept.append(r)", "pass"),
    "name of a comprehension": (MADE, "[kept.append(r) for kept in (seen,)]", "pass"),
    "name of a pattern": (MADE, "match seen:\n            case list() as kept:\n"
        "                kept.append(r)", "pass"),
    "in a list": (MADE + "; held = [seen]", "held[0].append(r)", "pass"),
    "in a dictionary": (MADE + "; held = dict(a=seen)", "held['a'].append(r)", "pass"),
    "in an attribute": (MADE + "; sink.box = seen", "sink.put(r)", "pass"),
    "in a function": (MADE + "\n    def put(x):\n        seen.append(x)", "put(r)", "pass"),
    "in a lambda": (MADE + "; put = lambda x: seen.append(x)", "put(r)", "pass"),
    "in a default": (MADE + "\n    def put(x, kept=seen):\n        kept.append(x)", "put(r)", "pass"),
    "in a class": (MADE + "\n    class Kept:\n        seen = seen", "Kept.seen.append(r)", "pass"),
    "in a generator": (MADE + "; put = (seen.append(x) for x in rows)", "next(put)", "pass"),
    "bound by an inner function": (
        MADE + "\n    def swap(x):\n        nonlocal seen\n        seen = seen + [x]", "swap(r)", "pass",
    ),
    "in an iterator": (MADE + "; it = iter(seen)", "it.__reduce__()[1][0].append(r)", "pass"),
    "in a zip": (MADE + "; it = zip(seen, rows)", "next(it, 0); sink.put(r)", "pass"),
    "added to": (MADE + "; seen + sink", "sink.put(r)", "pass"),
    "added to something": (MADE + "\n    sink2 = [0]\n    sink2 += seen", "sink2[1:] = r", "sink2"),
    "compared": (MADE + "; seen == sink", "sink.put(r)", "pass"),
    "sum from": (MADE + "; sum([sink], seen) if 0 else seen + sink", "sink.put(r)", "pass"),
    "code as text": (MADE, "eval('seen.append(r)')", "pass"),
    "code as text elsewhere": (MADE + "; go = EVAL", "go('seen.append(r)')", "pass"),
    "frame": (MADE, "sys._getframe().f_locals['seen'].append(r)", "pass"),
    "variables": (MADE, "locals()['seen'].append(r)", "pass"),
    "variables by another name": (MADE, "vars()['seen'].append(r)", "pass"),
    "shuffled": (MADE, "random.shuffle(seen)", "pass"),
    "shuffled by a method": (MADE, "random.Random(1).shuffle(seen)", "pass"),
    "set by operator": (MADE, "operator.setitem(seen, 0, r)", "pass"),
    "set at an item": (MADE, "seen[0] = r", "pass"),
    "set at a slice": (MADE, "seen[:1] = [r]", "pass"),
    "item of a loop": (MADE, "for seen[0] in r:\n            pass", "pass"),
    "deleted": (MADE, "del seen[0]; seen.append(r)", "pass"),
    "popped": (MADE, "seen.append(seen.pop(0) + r)", "pass"),
    "added in place": (MADE, "seen += [r]", "pass"),
    "extended": (MADE, "seen.extend(r)", "pass"),
    "appended a result": (MADE, "seen.append(r + 'q')", "pass"),
    "appended in an expression": (MADE, "n = seen.append(r)", "pass"),
    "bound twice": (MADE, "if r == 'x':\n            seen = list('xyz')", "pass"),
    "error of that name": (MADE, "try:\n            0 / 0\n        except ZeroDivisionError as seen:\n"
        "            pass", "pass"),
    "not made here": ("seen = sink.box = ['a']", "sink.put(r)", "pass"),
    "an argument": ("sink.box = seen = sink.__dict__.setdefault('kept', [])", "sink.put(r)", "pass"),
    "perhaps an argument": ("sink.box = []; seen = sink.box", "sink.put(r)", "pass"),
    "made by others": ("sink.box = ['a']; seen = sink.box.__iadd__([])", "sink.put(r)", "pass"),
    "a class of lists": ("class L(list):\n        __contains__ = lambda s, x: x == 'x'\n"
        "    seen = L('abc')", "sink.put(r)", "pass"),
    "a type that has no hash": (
        MADE + "; T = type('T', (type,), dict(__eq__=lambda c, o: True, __hash__=None))\n"
        "    class Typed(type):\n        __hash__ = None\n    K = Typed('K', (), {})", "K() in seen; r = K()", "pass",
    ),
    "one of several turns": (
        MADE, "pass", "for n in range(2):\n        for r in rows:\n            out.append(r in seen)\n"
            "        sink.box = seen",
    ),
}  # fmt: skip


def own(first, inside, after):
    code = OWN.replace("FIRST", first).replace("INSIDE", inside).replace("AFTER", after)
    return code.replace("EVAL", "eval")


def printed(text):
    """Return what a script prints, its error, and the state of the random generator behind it."""
    random.seed(0)
    out, error = io.StringIO(), ""
    with redirect_stdout(out):
        try:
            exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
        except Exception as raised:
            error = repr(raised)
    return out.getvalue(), error, random.getstate()


def the_same_or_left(folder, text):
    """Make the edit and compare what is printed; return whether it was made."""
    after, left = edited(folder, "list-lookups", text)
    before = printed(text)
    if before[1]:
        assert "Error" in before[1] and left, f"the script itself is wrong: {before[1]}"
    if not left:
        assert printed(after) == before
    return not left


@pytest.mark.parametrize("name", OF_OWN)
def test_a_list_of_its_own_is_looked_up_in_a_set(tmp_path, name):
    assert the_same_or_left(tmp_path, own(*OF_OWN[name]))


@pytest.mark.parametrize("name", AGAINST_OWN)
def test_a_list_that_others_may_get_hold_of_is_not(tmp_path, name):
    text = own(*AGAINST_OWN[name])
    if name == "one of several turns":
        text = text.replace("out.append(r in seen)  # <<", "pass").replace(
            "            out.append(r in seen)\n", "            out.append(r in seen)  # <<\n            sink.put(r)\n"
        )
    assert not the_same_or_left(tmp_path, text)


OTHERS = """\
import math, random
import torch
from torch.utils.data import Dataset

POOL = list("abcdefghij")

def grow():
    if len(POOL) < 40:
        POOL.append("q")

class Loud:
    def __init__(self, n=0):
        self.n = n
    def __eq__(self, other):
        grow()
        return False
    def __str__(self):
        grow()
        return "q"
    def __lt__(self, other):
        grow()
        return self.n < 5
    def __add__(self, other):
        grow()
        return other
    def __index__(self):
        grow()
        return 1
    def __del__(self):
        grow()
    def __call__(self, x):
        grow()
        return x
    def __len__(self):
        grow()
        return 3
    def __iter__(self):
        for x in "abqq":
            grow()
            yield x
    def __getitem__(self, at):
        grow()
        return "q"
    def append(self, x):
        grow()
    def count(self, x):
        grow()
        return 1
    def __contains__(self, x):
        grow()
        return True
    def __setattr__(self, name, value):
        grow()
        object.__setattr__(self, name, value)
    __hash__ = object.__hash__

class Data(Dataset):
    def __init__(self, pool, num):
        self.pool = pool
        self.num = num

    def run(self, rows, pool, loud):
        out = []
        HERE
        return out

def loud_score(x):
    grow()
    return x

print(Data(POOL, 4).run([*"abqqa"], POOL, Loud()), len(POOL))
"""
for_rows = "for r in rows:\n            out.append(r in pool)  # <<\n            "
OF_OTHERS = {
    "nothing": for_rows + "n = 1 + len(out)",
    "attribute": "for r in rows:\n            out.append(r in self.pool)  # <<\n            k = self.num + 1",
    "all in one": "out = [self.pool.count(r) for r in self.pool]  # <<",
    "the module's": "out = [POOL.count(r) for r in rows if r in POOL]  # <<",
    "draws": for_rows + "n = random.randrange(self.num)",
    "other operations": "for k, r in enumerate(sorted(rows)):\n            n = rows[k]\n"
    "            if n in pool and k < 3:  # <<\n"
    "                out.append(str(k) + n)",
    "untested": "for r in rows:\n            if r is None:\n                break\n"
    "            out.append((r, -len(r) in pool))  # <<",
    "a while": "k = 0\n        while k < self.num:\n            k += 1\n            item = random.random()\n"
    "            if item not in pool:  # <<\n                out.append(k)",
}
AGAINST_OTHERS = {
    "an iterator": "for r in loud:\n            out.append(r in pool)  # <<",
    "a comprehension over an iterator": "out = [pool.count(r) for r in loud]  # <<",
    "objects sought": "loud = [loud]\n        for r in [*loud, *rows]:\n            out.append(r in pool)  # <<",
    "an object that is dropped": "k = Loud()\n        for r in rows:\n            out.append(r in pool)  # <<\n"
    "            k = r",
    "a variable of a loop that is dropped": "r = Loud()\n        for r in rows:\n"
    "            out.append(r in pool)  # <<",
    "sums": for_rows + "n = loud + 1",
    "comparison": for_rows + "n = loud < 1",
    "text": for_rows + "n = str(loud)",
    "index": for_rows + "n = rows[loud]",
    "bound": "for k in range(loud):\n            out.append(rows[k % 5] in pool)  # <<",
    "draw": for_rows + "n = random.randrange(loud)",
    "length": for_rows + "n = len(loud)",
    "call": for_rows + "n = loud('q')",
    "function": for_rows + "n = loud_score(r)",
    "append of another": for_rows + "loud.append(r)",
    "append to it": for_rows + "pool.append(r)",
    "append by another name": "kept = pool\n        for r in rows:\n            out.append(r in pool)  # <<\n"
    "            kept.append(r)",
    "item of another": for_rows + "n = loud[0]",
    "list of another": for_rows + "n = r in loud",
    "count of another": for_rows + "n = loud.count(r)",
    "attribute of another": for_rows + "loud.n = 1",
    "attribute of its own": for_rows + "self.last = r",
    "formatted": for_rows + "n = f'{loud}'",
    "truth": for_rows + "n = 1 if loud else 2",
    "yield": "def g():\n            for r in rows:\n                yield r in pool  # <<\n"
    "        out = [(hit, POOL.append('q')) for hit in g()]",
    "with": for_rows + "with torch.no_grad():\n                n = 1",
    "a call before": "out = [loud('q'), [pool.count(r) for r in rows]]  # <<",
    "a call between": "out = loud([loud('q'), [pool.count(r) for r in rows]])  # <<",
    "an attribute before": "out = max(loud.n, sum(pool.count(r) for r in rows), key=loud)  # <<",
}


@pytest.mark.parametrize("name", OF_OTHERS)
def test_a_list_of_others_is_looked_up_in_a_set_where_all_is_quiet(tmp_path, name):
    before, after = OTHERS.split("class Loud:")[0], OTHERS.split("__hash__ = object.__hash__\n")[1]
    tame = f"{before}class Loud:\n    pass\n{after}"
    assert the_same_or_left(tmp_path, tame.replace("HERE", OF_OTHERS[name]))


@pytest.mark.parametrize("name", AGAINST_OTHERS)
def test_nothing_changes_where_code_of_others_may_run(tmp_path, name):
    text = OTHERS.replace("HERE", AGAINST_OTHERS[name])
    assert "q" in text
    the_same_or_left(tmp_path, text)


CLASS = """\
import random
from torch.utils.data import Dataset
MORE
class Data(Dataset):
    BODY
    def __init__(self, words):
        self.words = list(words)
    def run(self, rows):
        return [self.words.count(r) for r in self.words]  # <<

print(MADE.run("abqqa"))
"""
LOUD = "def look(self):\n    at = self.__dict__.setdefault('at', [0])\n    at[0] += 1\n    return list('abc' * at[0])\n"
ATTRIBUTES = {
    "nothing": ("", "pass", "Data('abqqabcde')"),
    "property": ("", "@property\n    def words(self):\n"
        "        self._w.append('a') if len(self._w) < 30 else 0\n        return self._w\n"
                 "    @words.setter\n    def words(self, w):\n        self._w = w", "Data('abqqabcde')"),
    "property set later": (LOUD, "pass", "(setattr(Data, 'words', property(look, lambda s, w: None)), Data('ab'))[1]"),
    "property by name": (LOUD + "def fit(c, n):\n    setattr(c, n, property(look, lambda s, w: None))\n", "pass",
                         "(fit(Data, 'wor' + 'ds'), Data('ab'))[1]"),
    "subclass": (LOUD, "pass", "type('D', (Data,), {'words': property(look, lambda s, w: None)})('ab')"),
    "looked at": ("", "def __getattribute__(self, name):\n        w = object.__getattribute__(self, name)\n"
                  "        w.append('a') if name == 'words' and len(w) < 30 else 0\n        return w",
                  "Data('abqqabcde')"),
    "list of its own kind": ("class L(list):\n    def count(self, x):\n        return 7\n",
                             "def __setattr__(self, n, v):\n        object.__setattr__(self, n, L(v))", "Data('abc')"),
    "called for another": ("class P:\n    @property\n    def words(self):\n        return list('ab')\n", "pass",
                           "type('X', (), {'run': lambda s, r: Data.run(P(), r)})()"),
    "class of another": ("class P:\n    @property\n    def words(self):\n        return list('ab')\n"
                         "    run = None\ndef turned(d):\n    run = d.run\n    d.__class__ = P\n"
                             "    return run.__self__\n",
                         "pass", "Data('ab')"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_one_that_runs_no_code(tmp_path, name):
    more, body, made = ATTRIBUTES[name]
    text = CLASS.replace("MORE", more).replace("BODY", body).replace("MADE", made)
    assert the_same_or_left(tmp_path, text) is (name == "nothing")
