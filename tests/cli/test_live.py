"""A script's output above the panel of `flatout run --live`, on a recorded console."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.unit.report.test_live import NOW

from flatout.cli.live import Panel
from flatout.cli.screen import Screen

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def fed(*chunks):
    screen = Screen()
    return [line for chunk in chunks for line in screen.feed(chunk)], screen


# --------------------------------------------------------------------------------------------------------------- lines
def test_finished_lines_go_up_and_the_rest_stays():
    lines, screen = fed(b"one\r\ntwo\nthr", b"ee")
    assert lines == ["one", "two"]
    assert screen.rows == ["three"]
    assert screen.rest() == ["three"]
    assert screen.rows == []


def test_a_bar_that_is_written_over_is_one_row():
    lines, screen = fed(*(b"\r %d%%" % each for each in range(99)))
    assert (lines, screen.rows) == ([], [" 98%"])
    assert screen.feed(b"\r100%\ndone\n") == ["100%", "done"]


def test_bars_one_below_the_other_are_as_many_rows():
    step = b"\router %d\n\rinner %d\x1b[A"
    lines, screen = fed(*(step % (each, each) for each in range(50)))
    assert len(lines) <= 1  # the first time they come
    assert screen.rows == ["outer 49", "inner 49"]
    assert screen.feed(b"\n\n") == ["outer 49"]
    assert screen.rest() == ["inner 49"]


def test_letters_cut_in_two_and_bytes_that_are_none():
    assert fed(b"gr\xc3", b"\xbc\xc3\x9fe\n")[0] == ["grüße"]
    assert fed(b"\xff\n")[0] == ["\\xff"]


def test_colours_stay_and_everything_else_that_a_terminal_obeys_is_left_out():
    hostile = (
        b"\x1b[31mred\x1b[0m\x1b[2J\x1b[H\x1b[?1049h\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x07\x00\x0e\xc2\x9b5A\n"
    )
    assert fed(hostile)[0] == ["\x1b[31mred\x1b[0mlink5A"]
    assert fed(b"a\x1b", b"[", b"2", b"Jb\n")[0] == ["ab"]
    assert fed(b"a\x1b]0;", b"x" * 5000, b"\nb\n")[0][-1] == "b"


def test_a_row_without_end_goes_up_in_pieces():
    lines, screen = fed(*[b"x" * 1000] * 100)
    assert sum(map(len, lines)) + sum(map(len, screen.rows)) == 100_000
    assert sum(map(len, screen.rows)) < 20_000


MOVES = (b"\n", b"\r", b"\b", b"\x1b[A", b"\x1b[3B", b"\x1b[K", b"\x1b[2K")
SPECIAL = (*MOVES, b"\x1b[31m", b"\x1b]0;t\x07", b"text")
PIECES = st.one_of(st.binary(max_size=8), st.sampled_from(SPECIAL))


@given(st.lists(PIECES, max_size=60))
def test_whatever_is_written_only_colours_reach_the_terminal(pieces):
    lines, screen = fed(*pieces)
    for line in [*lines, *screen.rows]:
        left = COLOUR.sub("", line).replace("\t", " ")
        assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in left)
    assert len(screen.rows) <= 6


@given(st.lists(PIECES, max_size=30), st.integers(0, 100))
def test_where_a_chunk_ends_makes_no_difference(pieces, cut):
    whole = b"".join(pieces)
    at_once, first = fed(whole)
    in_two, second = fed(whole[:cut], whole[cut:])
    assert (at_once, first.rows) == (in_two, second.rows)


# --------------------------------------------------------------------------------------------------------------- panel
@pytest.fixture
def recorded():
    """A console of 80 columns and 40 lines that keeps what is drawn."""
    return Console(file=io.StringIO(), force_terminal=True, width=80, height=40, legacy_windows=False, _environ={})


def drawn(console):
    return console.file.getvalue()


def standing(text):
    """Return the lines that stand on a terminal in the end."""
    rows, at = [""], 0
    for token in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", text):
        if token == "\n":
            at += 1
            rows += [""] * (at == len(rows))
        elif token.endswith("A") and token[0] == "\x1b":
            at = max(0, at - int(token[2:-1]))  # a terminal's cursor stops at the top
        elif token == "\x1b[2K":
            rows[at] = ""
        elif token[0] not in "\x1b\r":
            rows[at] += token
    return [row.rstrip() for row in rows if row.strip()]


def test_the_script_s_lines_stand_and_the_panel_is_gone_in_the_end(recorded):
    with Panel(recorded) as panel:
        panel.wrote(b"one\n")
        panel.draw(NOW)
        panel.wrote(b"two\nprompt> ")
        panel.draw(None)
        shown = standing(drawn(recorded))
        assert shown[:2] == ["one", "two"]
        assert shown[2].startswith("── train.py, 2 min 05 s, step 1,234")
        assert shown[-1] == "prompt>"
    assert standing(drawn(recorded)) == ["one", "two", "prompt>"]
    assert panel.last_words[0].startswith("train.py: 1,234 steps")


def test_the_cursor_is_seen_all_the_time(recorded):
    with Panel(recorded) as panel:
        panel.draw(NOW)
        shown = re.findall(r"\x1b\[\?25[lh]", drawn(recorded))
        assert shown[-1] == "\x1b[?25h"


def test_a_low_terminal_cuts_the_panel_and_never_the_script_s_row():
    low = Console(file=io.StringIO(), force_terminal=True, width=80, height=8, legacy_windows=False, _environ={})
    with Panel(low) as panel:
        panel.wrote(b"50%")
        panel.draw(NOW)
        assert len(standing(drawn(low))) == 7
        assert standing(drawn(low))[-1] == "50%"


def test_where_drawing_fails_the_output_is_passed_on_as_it_is(recorded, monkeypatch, capfdbinary):
    with Panel(recorded) as panel:
        monkeypatch.setattr("flatout.cli.live.live_lines", lambda now, look: 1 / 0)
        panel.draw(NOW)
        panel.wrote(b"\xffraw\n")
        panel.draw(NOW)
    assert capfdbinary.readouterr().err == b"\xffraw\n"
