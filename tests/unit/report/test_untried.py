"""The lines on fixes that were not tried, and on the next class of equality, on the terminal and on the page."""

from dataclasses import replace

from tests.unit.report.specimens import HOSTILE, comparison, tuned, tuned_in_vain

from flatout.report.html.page import page
from flatout.report.layout import Look
from flatout.report.text import text
from flatout.report.untried import MAX_UNTRIED, next_class, untried_rows
from flatout.schema.trial import Equivalence, Untried

DRAWN = "samples are drawn from numpy's global generator (Drawn, train.py:23), and workers would draw other numbers"
UNFIT = (Untried(fix="loader-workers", reason=DRAWN), Untried(fix="core-split", reason=DRAWN))


def weaker(fix, equivalence, ceiling):
    return Untried(fix=fix, reason="weaker", equivalence=equivalence, ceiling=ceiling, findings=("IN002",))


STATISTICAL = (
    weaker("slow-one", Equivalence.STATISTICAL, 1.2),
    weaker("workers", Equivalence.STATISTICAL, 1.9),
    weaker("larger", Equivalence.SEMANTIC, 9.0),
)


def shown(report):
    return " ".join(text(report, Look(width=80)).plain.split())


def test_fixes_of_one_reason_share_a_line():
    assert untried_rows(UNFIT) == [("loader-workers, core-split", DRAWN)]


def test_there_are_at_most_eight_lines_and_no_fix_is_lost():
    many = [Untried(fix=f"f{number}", reason=f"reason {number}") for number in range(12)]
    rows = untried_rows(many)
    assert len(rows) == MAX_UNTRIED
    assert rows[-1][0] == "f7, f8, f9, f10, f11"


def test_the_terminal_and_the_page_name_them():
    report = replace(tuned_in_vain(), untried=UNFIT)
    assert f"Not tried loader-workers, core-split: {DRAWN}" in shown(report)
    written = page(report)
    assert "<li>loader-workers, core-split: samples are drawn from" in written
    assert "Not tried" not in shown(tuned_in_vain())
    assert "Not tried" not in page(tuned_in_vain())


def test_where_nothing_is_kept_the_next_class_is_named_with_its_bounds():
    report = replace(tuned_in_vain(), untried=STATISTICAL)
    sentence = "With --equal statistical: workers, at most 1.90x (IN002); slow-one, at most 1.20x (IN002)."
    assert next_class(report) == sentence
    assert sentence in shown(report)
    assert sentence in page(report)


def test_only_the_nearest_class_is_named():
    nearer = weaker("rounded", Equivalence.ROUNDING, 1.1)
    told = next_class(replace(tuned_in_vain(), untried=(*STATISTICAL, nearer)))
    assert told == "With --equal rounding: rounded, at most 1.10x (IN002)."


def test_where_enough_is_kept_or_nothing_could_act_no_class_is_named():
    assert next_class(replace(tuned(), untried=STATISTICAL)) == ""
    assert next_class(replace(tuned(), untried=STATISTICAL, confirmation=comparison(1.03))) != ""
    assert next_class(replace(tuned_in_vain(), untried=UNFIT)) == ""
    assert next_class(replace(tuned_in_vain(), untried=STATISTICAL[-1:])) == ""  # another training: on request


def test_texts_of_a_script_stay_texts():
    odd = replace(tuned_in_vain(), untried=(Untried(fix=HOSTILE, reason=HOSTILE),))
    assert "\x1b" not in text(odd, Look(width=80)).plain
