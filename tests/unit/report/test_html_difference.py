"""The page of a comparison: it says what the terminal says, loads and runs nothing, and no name in it can act."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.report.specimens import HOSTILE, finding
from tests.unit.report.test_html import INVISIBLE, SCRIPT, Reader

from flatout.analysis.difference import Gate
from flatout.report.difference import difference_text
from flatout.report.html.difference import difference_page
from flatout.report.layout import Look
from flatout.schema.difference import Change, Difference, Surrounding
from flatout.schema.run import Frame


def change(name, before_ms, after_ms, width_ms=1.0):
    moved = after_ms - before_ms
    return Change(name=name, before_ms=before_ms, after_ms=after_ms, low_ms=moved - width_ms, high_ms=moved + width_ms)


def difference(**changes):
    """Return a comparison in which the input became slower and a finding came."""
    return replace(
        Difference(
            script="train.py",
            num_before=3,
            num_after=3,
            before_ms=100.0,
            after_ms=120.0,
            ratio=1.2,
            low=1.15,
            high=1.25,
            noise=0.03,
            chance=1e-6,
            phases=(change("input", 62, 82), change("forward", 20, 20.2), change("backward", 18, 17.8)),
            came=(finding(),),
            went=(finding("HO002", "logging-every-step", message="5% of each step logs."),),
            surroundings=(Surrounding("torch", "2.12.0", "2.13.0"),),
        ),
        **changes,
    )


SLOWER = Gate(passed=False, reason="20% slower, beyond noise")
HOSTILE_DIFFERENCE = difference(
    script=HOSTILE + SCRIPT,
    came=(
        finding(
            SCRIPT, HOSTILE, message=HOSTILE + SCRIPT, location=Frame(f"/x/{SCRIPT}.py", 3, HOSTILE), fixes=(SCRIPT,)
        ),
    ),
    phases=(change(HOSTILE + '"><script>', 62, 82),),
    surroundings=(Surrounding(SCRIPT, HOSTILE, SCRIPT),),
)
EVERY = {
    "slower": difference(),
    "alone": difference(num_before=1, num_after=1, came=(), went=(), surroundings=(), phases=()),
    "other batches": difference(samples_before=32.0, samples_after=64.0),
    "hostile": HOSTILE_DIFFERENCE,
    "endless": difference(low=0.0, high=math.inf, phases=(change("input", 1.0, 2.0, math.inf),)),
}


@pytest.mark.parametrize("name", list(EVERY))
def test_a_page_is_well_formed_fetches_nothing_and_runs_nothing(name):
    text = difference_page(EVERY[name], limit=0.05, gate=SLOWER)
    read = Reader(text)
    assert not read._inside
    assert not read.fetched
    assert "script" not in read.tags
    assert "default-src 'none'" in text
    assert "script-src" not in text
    assert read.tags.count("h1") == 1
    assert len(text.encode()) < 50_000
    assert not set(text) & INVISIBLE


@pytest.mark.parametrize("name", ["slower", "alone", "other batches"])
def test_it_says_what_the_terminal_says(name):
    found = EVERY[name]
    words = Reader(difference_page(found, limit=0.05, gate=SLOWER)).words
    told = difference_text(found, Look(width=100_000), limit=0.05, gate=SLOWER).plain
    for sentence in re.findall(r"(?:B is slower|Failed|Steps of A|One recording)[^\n]*", told):
        assert " ".join(sentence.split()) in words
    for phase in found.phases:
        assert phase.name in words


def test_what_came_and_what_went_stand_apart_with_their_place():
    words = Reader(difference_page(difference())).words
    came, went = words.partition("In A only")[::2]
    assert "IN003 slow-sample-line" in came.partition("In B only")[2]
    assert "train.py:48" in came
    assert "62% of the step, at most 2.6x" in came
    assert "HO002 logging-every-step" in went
    assert "torch 2.12.0 2.13.0" in went


def test_without_a_limit_there_is_no_verdict_of_one():
    words = Reader(difference_page(difference())).words
    assert "Failed" not in words
    assert "limit" not in words


def test_the_largest_change_comes_first_and_only_what_is_sure_is_coloured():
    text = difference_page(difference())
    rows = re.findall(r'<tr>\n<th scope="row"><span class="key (\w+)">.*?<td class="number (\w+)">', text, re.DOTALL)
    assert rows == [("input", "look"), ("forward", "quiet"), ("backward", "quiet")]


def test_intervals_are_drawn_around_the_middle():
    text = difference_page(difference(phases=(change("input", 50.0, 50.0, 5.0),)))
    left, right = re.search(r'class="span" style="left:([\d.]+)%;right:([\d.]+)%"', text).groups()
    assert float(left) == pytest.approx(float(right), abs=0.02)
    assert 'class="dot" style="left:50.00%"' in text


@given(st.lists(st.tuples(*[st.floats(allow_nan=True, allow_infinity=True) for _ in range(4)]), min_size=1, max_size=4))
def test_whatever_the_numbers_are_places_lie_on_the_page(rows):
    phases = tuple(
        Change(name="input", before_ms=before, after_ms=after, low_ms=low, high_ms=high)
        for before, after, low, high in rows
    )
    text = difference_page(difference(phases=phases))
    for place in re.findall(r"(?:left|right|width):([^;\"]*)", text.partition("<body>")[2]):
        assert re.fullmatch(r"\d+(\.\d+)?%", place)
        assert 0 <= float(place[:-1]) <= 100
