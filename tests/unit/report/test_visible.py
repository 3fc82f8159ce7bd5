"""Text of strangers, made safe and short."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.report.visible import cells, shorten_end, shorten_path, visible, wrap


@given(st.text())
def test_nothing_that_moves_the_cursor_or_turns_the_text_around_remains(text):
    kinds = {unicodedata.category(character) for character in visible(text)}
    assert not kinds & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.text())
def test_what_is_shown_can_be_encoded_anywhere(text):
    visible(text).encode("utf-8")
    visible(text, ascii_only=True).encode("ascii")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [bold]text[/bold]", "plain [bold]text[/bold]"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\r\nb\tc", "a\\r\\nb c"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b2J", "\\x9b2J"),
        ("caf\u00e9 \u6570\u636e", "caf\u00e9 \u6570\u636e"),
        ("\udc80", "\\udc80"),
        ("\U000e0041", "\\U000e0041"),
        ("\x00\x7f", "\\x00\\x7f"),
    ],
)
def test_escapes_are_visible_and_ordinary_text_stays(text, shown):
    assert visible(text) == shown


def test_without_unicode_every_other_letter_is_escaped():
    assert visible("caf\u00e9", ascii_only=True) == "caf\\xe9"


def test_endless_text_is_cut():
    assert len(visible("x" * 1_000_000)) < 5000


@given(st.text(), st.integers(3, 100))
def test_shortened_text_fits(text, width):
    assert cells(shorten_end(visible(text), width)) <= width
    assert cells(shorten_path(visible(text), width)) <= width


def test_a_path_is_shortened_in_its_middle():
    assert shorten_path("/home/someone/projects/deep/down/train.py", 24) == "/home/s.../down/train.py"


@given(st.text(), st.integers(4, 100))
def test_wrapped_lines_fit_and_lose_no_word(text, width):
    lines = wrap(visible(text), width)
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(visible(text).split())


def test_a_number_stays_with_its_unit():
    assert wrap("it took 12.5 ms in all", 12) == ["it took", "12.5 ms in", "all"]


def test_no_text_is_one_empty_line():
    assert wrap("", 10) == [""]
