"""JSON written from kept text: the bytes, the errors and what stands in the file after them are those of json."""

import io
import json
import math
import random

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatout.kept import kept_json
from flatout.kept.kept_json import KeptJson

DUMP, DUMPS = json.dump, json.dumps
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**70, -(2**63), 0.0, -0.0, 1.0, 1e300, math.nan, math.inf, -math.inf, 0.1]),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["\n", "\ud800", "é", "\u2028", '"', "\\", "\x00", "true"]),
)
KEYS = st.one_of(st.text(max_size=3), st.integers(-2, 2), st.booleans(), st.none(), st.sampled_from([1.0, 0.5, "1"]))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["step", "loss", "tag", "more"]), VALUES, max_size=4), max_size=40)
STYLES = st.fixed_dictionaries(
    {},
    optional={
        "indent": st.sampled_from([None, 0, 1, 2, "\t", "", -1]),
        "separators": st.sampled_from([None, (",", ":"), ("; ", "=")]),
        "sort_keys": st.booleans(),
        "ensure_ascii": st.booleans(),
        "allow_nan": st.booleans(),
        "check_circular": st.booleans(),
    },
)


class Odd(int):
    """An integer that json writes as one, and prints as another."""

    def __repr__(self):
        return "odd"


STRANGE = [Odd(3), numpy.float64(0.5), numpy.int64(1), (1, (2,)), b"x", {1, 2}, bytearray(8), object(), 3j, range(3)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Let small values have parts, too."""
    monkeypatch.setattr(kept_json, "_SMALL", 0)
    monkeypatch.setattr(kept_json, "_PART", 40)
    monkeypatch.setattr(kept_json, "_RUN", 3)


def kept():
    hits, reasons = [], []
    made = KeptJson(lambda: hits.append(1), reasons.append)
    dumps = made.returning(DUMPS)
    return made.dumping(DUMP), dumps, hits, reasons


def outcome(path, dump, dumps, value, style):
    """Return what the two functions give or raise, and what is in the file behind it."""
    found = []
    try:
        found.append(dumps(value, **style))
    except Exception as error:
        found.append((type(error), str(error)))
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            dump(value, file, **style)
    except Exception as error:
        found.append((type(error), str(error)))
    text = io.StringIO()
    try:
        dump(value, text, **style)
    except Exception as error:
        found.append((type(error), str(error)))
    return found, path.read_bytes(), text.getvalue()


def change(draw, rows):
    """Change a history in one of the ways in which scripts do."""
    kind = draw(st.integers(0, 8))
    at = draw(st.integers(0, max(0, len(rows) - 1)))
    if kind <= 2 or not rows:
        rows.append(draw(st.dictionaries(st.sampled_from(["step", "loss"]), SCALARS, max_size=2)))
    elif kind == 3:
        rows[at] = draw(VALUES)
    elif kind == 4:
        del rows[at]
    elif kind == 5:
        rows.reverse()
    elif kind == 6:
        rows.append(rows[at])  # the same object twice
    elif isinstance(rows[at], dict):
        rows[at][draw(KEYS)] = draw(st.one_of(VALUES, st.sampled_from(STRANGE)))
    elif isinstance(rows[at], list):
        rows[at].append(draw(VALUES))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_text_files_and_errors_are_those_of_json(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "history.json"
    dump, dumps, _, _ = kept()
    rows = data.draw(ROWS)
    styles = data.draw(st.lists(STYLES, min_size=1, max_size=3))
    whole = data.draw(st.sampled_from(["rows", "dictionary", "tuple"]))
    for _ in range(4):
        value = {"rows": rows, "config": {"lr": 0.1}} if whole == "dictionary" else rows
        value = tuple(rows) if whole == "tuple" else value
        for style in styles:
            assert outcome(path, dump, dumps, value, style) == outcome(path, DUMP, DUMPS, value, style)
        change(data.draw, rows)


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: type(value).__name__)
def test_what_has_the_bytes_of_a_known_value_is_no_known_value(tmp_path, strange):
    dump, dumps, _, _ = kept()
    for value in (
        [{"a": 0.5, "b": [1, 2, 3]}] * 20,
        [{"a": strange, "b": [1, 2, 3]}] * 20,
        [strange] * 9,
        {"k": strange},
    ):
        for _ in range(2):
            for style in ({}, {"indent": 1}, {"default": repr}, {"default": repr, "indent": 2}):
                ours = outcome(tmp_path / "a", dump, dumps, value, style)
                assert ours == outcome(tmp_path / "a", DUMP, DUMPS, value, style)


def test_numbers_that_are_equal_are_told_apart():
    _, dumps, hits, _ = kept()
    for value in (1, True, 1.0, 0, False, 0.0, -0.0, None, "1"):
        for _ in range(2):
            assert dumps([value] * 50) == DUMPS([value] * 50)
            assert dumps({"1": value, "list": [value] * 50}) == DUMPS({"1": value, "list": [value] * 50})
    assert len(hits) == 36


def test_circles_and_depth_raise_what_they_raise(tmp_path):
    dump, dumps, _, _ = kept()
    circle = [1] * 50
    circle.append(circle)
    deep = []
    for _ in range(200):
        deep = [deep, "x" * 9]
    for value in (circle, deep, {"a": circle}):
        for style in ({}, {"indent": 1}):
            ours, theirs = (outcome(tmp_path / "a", *pair, value, style) for pair in ((dump, dumps), (DUMP, DUMPS)))
            assert ours == theirs


def test_a_part_is_made_once(monkeypatch):
    made = []
    answers = KeptJson(lambda: None, made.append)
    dumps = answers.returning(lambda *given, **named: made.append(given) or DUMPS(*given, **named))
    rows = [{"step": step, "loss": step / 7} for step in range(300)]
    assert dumps(rows, indent=1) == DUMPS(rows, indent=1)
    first = len(made)
    rows.append({"step": 300, "loss": 0.5})
    assert dumps(rows, indent=1) == DUMPS(rows, indent=1)
    assert first > 50 and len(made) == first + 1


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(kept_json, "_MOST", 2000)
    monkeypatch.setattr(kept_json, "_TRIAL", 10**9)
    answers = KeptJson(lambda: None, lambda reason: None)
    dumps, rng = answers.returning(DUMPS), random.Random(0)
    for _ in range(50):
        value = [rng.random() for _ in range(30)]
        assert dumps(value) == DUMPS(value)
    (style,) = answers._styles.values()
    assert len(style.young) + len(style.old) < 40


def test_it_ends_where_everything_is_new(monkeypatch):
    monkeypatch.setattr(kept_json, "_TRIAL", 5000)
    _, dumps, hits, reasons = kept()
    rng = random.Random(0)
    for _ in range(100):
        value = [rng.random() for _ in range(30)]
        assert dumps(value) == DUMPS(value)
    assert len(hits) < 40 and len(reasons) == 1 and "new each time" in reasons[0]


def test_what_is_put_into_json_is_asked(monkeypatch):
    _, dumps, hits, _ = kept()
    value = [0.123456] * 50
    assert dumps(value) == DUMPS(value) and hits

    class Rounded(float):
        __repr__ = staticmethod(lambda number: format(number, ".2f"))

    monkeypatch.setattr(json.encoder, "c_make_encoder", None)
    monkeypatch.setattr(json.encoder, "float", Rounded, raising=False)
    assert dumps(value) == DUMPS(value) and "0.12]" in dumps(value)


def test_other_files_and_spellings_are_left_to_json():
    dump, dumps, hits, _ = kept()
    value = [[1, 2, 3]] * 50

    class Counting(io.StringIO):
        writes = 0

        def write(self, text):
            self.writes += 1
            return super().write(text)

    ours, theirs = Counting(), Counting()
    dump(value, ours)
    DUMP(value, theirs)
    assert ours.writes == theirs.writes > 100 and ours.getvalue() == theirs.getvalue()
    assert dumps(obj=value) == DUMPS(value)
    text = io.StringIO()
    dump(value, fp=text)
    assert text.getvalue() == DUMPS(value)
    with pytest.raises(TypeError):
        dumps(value, nonsense=1)
    assert not hits


def test_a_file_that_cannot_hold_the_text_holds_what_json_would_leave(tmp_path):
    dump, _, _, _ = kept()
    value = [["a" * 30]] * 9 + ["é"] + [["b" * 30]] * 9
    found = []
    for name, writes in (("ours", dump), ("theirs", DUMP)):
        with pytest.raises(UnicodeEncodeError), open(tmp_path / name, "w", encoding="ascii") as file:
            writes(value, file, ensure_ascii=False)
        found.append((tmp_path / name).read_bytes())
    assert found[0] == found[1] != b""
