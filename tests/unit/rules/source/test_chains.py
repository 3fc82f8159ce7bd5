"""A function whose time is spread over many parts is told from one with a part that dominates."""

import pytest

from flatout.rules import example, line
from flatout.rules.facts.user_lines import costs, hottest
from flatout.rules.source.chains import chain_of, listed, named_parts, spread_over
from flatout.schema.phase import Phase

GETITEM = ("data.py", 80, "Patches.__getitem__")
LOOP = ("train.py", 9, "train")


def steps(*seconds, caller="augment", one_line=False):
    """Return the cost of helpers that `augment` calls, one a line, or all from one line."""
    return [
        line(s, ("data.py", 10 * i, f"step{i}"), ("data.py", 50 if one_line else 50 + i, caller), GETITEM, LOOP)
        for i, s in enumerate(seconds, 1)
    ]


def found(lines):
    run = example(lines=lines).run
    seen = costs(run, Phase.INPUT)
    return spread_over(run, hottest(seen, seen), seen, seen)


def test_many_small_parts_are_named_as_a_whole_at_the_line_of_the_dearest():
    chain = found(steps(0.5, 0.9, 0.7, 0.6))
    assert (chain.spot.place.line, chain.spot.place.function) == (52, "augment")
    assert chain.spot.seconds == pytest.approx(2.7)
    assert chain.spot.share == 1.0
    assert [part.name for part in chain.parts] == ["step2", "step3", "step4", "step1"]
    assert "4 parts" in named_parts(chain)
    assert [round(each.value) for each in listed(chain, 27.0)] == [9, 7, 6, 5]


def test_where_one_line_runs_all_parts_the_dearest_part_itself_is_named():
    chain = found(steps(0.5, 0.9, 0.7, 0.6, caller="Chain.__call__", one_line=True))
    assert (chain.spot.place.line, chain.spot.place.function) == (20, "step2")


def test_lines_of_the_function_itself_are_parts():
    own = [line(0.4, ("data.py", 60, "augment"), GETITEM, LOOP), line(0.3, ("data.py", 61, "augment"), GETITEM, LOOP)]
    chain = found(steps(0.9, 0.7) + own)
    assert [part.name for part in chain.parts] == ["step1", "step2", "line 60", "line 61"]


@pytest.mark.parametrize("seconds", [(2.0, 0.4, 0.4, 0.4), (0.9, 0.9, 0.9), (0.9, 0.9, 0.9, 0.01)])
def test_a_part_that_dominates_or_too_few_parts_make_no_chain(seconds):
    assert found(steps(*seconds)) is None


def test_few_samples_make_no_chain():
    assert found(steps(0.05, 0.05, 0.05, 0.05)) is None


def test_the_function_that_trains_is_no_chain():
    lines = [line(0.5, ("a.py", i, f"f{i}"), ("train.py", i, "train"), phase=Phase.HOST) for i in range(1, 6)]
    run = example(lines=[*lines, line(1.0, ("net.py", 3, "forward"), LOOP, phase=Phase.FORWARD)]).run
    assert chain_of(run, costs(run, Phase.HOST), costs(run, Phase.HOST)) is None
    bare = example(lines=lines).run
    assert chain_of(bare, costs(bare, Phase.HOST), costs(bare, Phase.HOST)).spot.place.function == "train"


def test_a_function_that_calls_itself_counts_once():
    lines = [line(0.5, ("a.py", i, f"f{i}"), ("a.py", 50, "walk"), ("a.py", 50, "walk"), LOOP) for i in range(1, 6)]
    assert found(lines).spot.seconds == pytest.approx(2.5)
