"""Findings as cards: name, gain, place, the line itself, numbers."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import finding

from flatout.report.cards import amounts, card, cards, format_evidence
from flatout.report.layout import Look
from flatout.schema.finding import Evidence
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, Header

HEADER = Header(script="train.py", working_folder="/work")
WIDE = Look(width=100)


def shown(one, look=WIDE, preview=False, header=HEADER):
    return [line.plain for line in card(1, one, header, look, preview=preview)]


def test_a_card_says_what_how_much_where_why_and_what_to_do():
    heading, place, *message, fixes = shown(finding())
    name, gain = "1. IN003 slow-sample-line", "62% of the step, at most 2.6x"
    assert heading == name + " " * (100 - len(name) - len(gain)) + gain
    assert place == "   train.py:48 in ImageDataset.__getitem__"
    assert " ".join(line.strip() for line in message) == finding().message
    assert fixes == "   Fixes: compiled-input, loader-workers"


def test_on_a_narrow_page_name_and_gain_stand_below_each_other():
    name, gain, *_ = shown(finding(), Look(width=36))
    assert name == "1. IN003 slow-sample-line"
    assert gain.startswith("   62% of the step, ")


def test_a_preview_is_said_to_be_one():
    assert "slow-sample-line (preview)" in shown(finding(), preview=True)[0]


def test_the_line_of_the_code_is_shown_unless_it_was_changed_since(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("a = 1\n  image = decode(path)\n")
    one = finding(location=Frame(str(path), 2, "f"))
    assert "     image = decode(path)" in shown(one)
    assert "     image = decode(path)" not in shown(one, header=replace(HEADER, started_unix_s=1.0))


@pytest.mark.parametrize("width", [30, 44, 60])
def test_the_path_of_a_place_gives_way(width):
    one = finding(location=Frame("/elsewhere/" + "deep/" * 30 + "train.py", 48, "ImageDataset.__getitem__"))
    place = next(line for line in shown(one, Look(width=width)) if ":48" in line)
    assert len(place) <= width


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ["62% of the step", "at most 2.6x"]),
        ({"phase": Phase.EPOCH_GAP}, ["62% of the run", "at most 2.6x"]),
        ({"phase": Phase.CHECKPOINT}, ["62%", "at most 2.6x"]),
        ({"share": 0.0}, ["at most 2.6x"]),
        ({"max_speedup": 1.004}, ["62% of the step"]),
        ({"share": 0.0, "max_speedup": 1.0}, []),
    ],
)
def test_amounts_are_named_by_what_they_are_of(changes, said):
    assert amounts(finding(**changes)) == said


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0618, "s", "0.06 s"),
        (75, "s", "75.0 s"),
        (12.34, "ms", "12.3 ms"),
        (0.62, "share", "62%"),
        (2048, "B", "2.0 KiB"),
        (640, "", "640"),
        (1234567.0, "images", "1.23457e+06 images"),
        (123456.0, "images", "123,456 images"),
    ],
)
def test_a_number_is_written_in_the_unit_that_it_came_in(value, unit, said):
    assert format_evidence(Evidence("x", value, unit)) == said


def test_cards_are_numbered_and_show_the_numbers_behind_them_where_all_is_asked_for():
    two = (finding(), finding("IN001", "loader-starved", location=None, fixes=()))
    few = [line.plain for line in cards(two, HEADER, WIDE, preview={"IN001"}, full=False)]
    heads = [few[place + 1].split("  ")[0] for place, line in enumerate(few) if not line]
    assert heads == ["1. IN003 slow-sample-line", "2. IN001 loader-starved (preview)"]
    full = [line.plain for line in cards(two, HEADER, WIDE, preview=(), full=True)]
    assert full.count("     seconds a batch: 0.06 s") == 2
    assert full.count("     samples: 640") == 2


def test_the_reason_of_a_bound_stands_beside_it_uncut():
    found = finding(share=0.33, max_speedup=4.7, bound_by="workers and the training share 2 cores")
    for width in (36, 60, 100):
        words = " ".join(" ".join(shown(found, Look(width=width))).split())
        assert "33% of the step, at most 4.7x (workers and the training share 2 cores)" in words
