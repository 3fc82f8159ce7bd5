"""The time account as lines: steps, what lies outside them, epochs and their price, ranks."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import empty, ordinary

from flatout.report.account import (
    account_lines,
    epoch_lines,
    format_rate,
    outside_lines,
    rank_lines,
    shown_phases,
    warmup_lines,
)
from flatout.report.layout import Look
from flatout.schema.finding import PhaseShare
from flatout.schema.phase import Phase
from flatout.schema.run import End, RankSummary

WIDE, NARROW = Look(width=200), Look(width=40)


def text(lines):
    return [line.plain for line in lines]


def test_the_step_and_its_phases_the_largest_first():
    first, *bars = text(account_lines(ordinary().breakdown, WIDE))
    assert first == ("Each step takes 100 ms (median 100 ms, 90% between 100 ms and 100 ms, n=60), 640 samples/s")
    assert [bar.split()[0] for bar in bars] == ["input", "forward", "backward", "optimizer", "host"]
    lengths = [bar.count("#") for bar in bars]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[1] / lengths[0] == pytest.approx(20 / 62, abs=0.01)
    assert lengths[-1] == 1  # a sliver of half a percent


def test_means_of_several_steps_are_said_to_be_such():
    breakdown = replace(ordinary().breakdown, steps_each=4)
    assert "n=60, as means of 4)" in text(account_lines(breakdown, WIDE))[0]


def test_lines_fit_the_page():
    assert all(len(line) <= 40 for line in text(account_lines(ordinary().breakdown, NARROW)))


def test_where_no_step_was_seen_there_is_no_account():
    assert account_lines(empty().breakdown, WIDE) == []


def test_a_phase_that_would_be_no_percent_is_not_shown():
    breakdown = replace(
        ordinary().breakdown, phases=(PhaseShare(Phase.INPUT, 1.0, 0.0004), PhaseShare(Phase.SYNC, 1.0, 0.0005))
    )
    assert [part.phase for part in shown_phases(breakdown)] == [Phase.SYNC]


@pytest.mark.parametrize(
    ("rate", "said"),
    [(12345.6, "12,346 samples/s"), (100, "100 samples/s"), (99.96, "100 samples/s"), (0.01234, "0.0123 samples/s")],
)
def test_a_rate_has_three_digits(rate, said):
    assert format_rate(rate) == said


def test_what_lies_outside_the_steps_is_one_sentence():
    outside, warmup = text(outside_lines(ordinary().breakdown, WIDE))
    assert outside.startswith("Outside the steps: startup 3.00 s (")
    assert ", validation 2.00 s (" in outside
    assert warmup == "Warm-up: first step, 0.50 s, left out."


@pytest.mark.parametrize(("each", "said"), [(1, "first 3 steps"), (4, "first 12 steps")])
def test_the_warm_up_counts_steps(each, said):
    breakdown = replace(ordinary().breakdown, warmup=3, steps_each=each)
    assert said in text(warmup_lines(breakdown, WIDE))[0]
    assert warmup_lines(replace(breakdown, warmup=0), WIDE) == []


def with_epochs(lengths, **run_detail):
    shown = ordinary()
    return replace(shown, run=replace(shown.run, epoch_lengths=lengths, **run_detail))


def test_an_epoch_has_a_price_where_an_hour_has_one():
    assert epoch_lines(ordinary(), 0.0, WIDE) == []
    said = " ".join(text(epoch_lines(with_epochs((30, 31)), 3600.0, WIDE)))
    assert said.startswith(
        "An epoch of 30 steps takes 5.00 s, validation, checkpoints and gaps included (2.00 s, seen once)"
    )
    assert "At 3600 an hour it costs 5.00;" in said
    assert "1.86 of that is waiting" in said


def test_without_an_end_of_an_epoch_that_is_said():
    said = " ".join(text(epoch_lines(with_epochs((30,), end=End(reason="script ended")), 1.0, WIDE)))
    assert "The cost of an epoch is not known" in said
    ended = with_epochs((30, 30), end=End(reason="script ended"))
    whole = replace(ended, run=replace(ended.run, header=replace(ended.run.header, mode="whole")))
    assert "seen 2 times" in " ".join(text(epoch_lines(whole, 1.0, WIDE)))


@pytest.mark.parametrize(("price", "said"), [(1.0, "0.0014"), (100.0, "0.14"), (1e6, "1,388.89")])
def test_small_prices_keep_two_digits(price, said):
    assert f"costs {said}" in " ".join(text(epoch_lines(with_epochs((30, 31)), price, WIDE)))


def rank(number, median_ms=10.0, steps=50):
    return RankSummary(rank=number, num_steps=steps, median_ms=median_ms)


def test_one_rank_is_no_news():
    assert rank_lines((rank(0),), WIDE) == []


def test_the_slowest_and_the_fastest_rank_are_named():
    said = text(rank_lines((rank(0, 10), rank(1, 30), rank(2, 20)), WIDE))
    assert said == ["Ranks: 3; rank 1 is the slowest (30.0 ms a step), rank 0 the fastest (10.0 ms)."]


@pytest.mark.parametrize(("steps", "said"), [(50, "50 steps each"), (40, "40 to 50 steps each")])
def test_processes_without_a_group_are_no_ranks(steps, said):
    (line,) = text(rank_lines((rank(0, 10), rank(0, 30, steps)), WIDE))
    assert line == f"2 training processes, {said}, medians 10.0 ms to 30.0 ms a step."
