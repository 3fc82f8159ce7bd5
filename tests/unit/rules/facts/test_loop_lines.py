"""Samples of a loop's head are those of the line in it that takes the time."""

from dataclasses import replace

import pytest

from flatout.rules.core.example import example, line
from flatout.rules.facts.loop_lines import in_their_lines
from flatout.rules.facts.user_lines import costs, hottest
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, RepeatedLine

TEXT = """\
def negatives(seen):
    out = []
    while len(out) < 48:
        item = random.randrange(1, 5000)
        if item not in seen:
            out.append(item)
    return out
"""


@pytest.fixture
def seen(tmp_path):
    """Return a function that gives the hottest line of 90 samples at one line, where lines were traced so long."""
    path = tmp_path / "data.py"
    path.write_text(TEXT)

    def at(sampled, traced, calling=0, **facts):
        below = [line(0.1, (str(path), calling, "negatives"), leaf="random")] if calling else []
        cost = line(0.9, (str(path), sampled, "negatives"), phase=Phase.INPUT, samples=90, **facts)
        lines = tuple(
            RepeatedLine(place=Frame(str(path), number, "negatives"), count=50, seconds=taken)
            for number, taken in traced.items()
        )
        run = in_their_lines(
            replace(example().run, causes=Causes(lines=(cost, *below), num_steps=40, repeated_lines=lines))
        )
        some = costs(run, Phase.INPUT, process=cost.process)
        return hottest(some, among=some).place.line

    return at


def test_the_dearest_line_of_a_loop_has_the_samples_of_its_head(seen):
    assert seen(3, {3: 0.01, 4: 0.03, 5: 0.08, 6: 0.01}) == 5


@pytest.mark.parametrize(
    ("sampled", "traced"),
    [
        (3, {}),
        (3, {3: 0.01, 4: 0.03, 5: 0.035, 6: 0.01}),
        (3, {4: 0.0, 5: 0.0}),
        (6, {3: 0.01, 5: 0.08}),
        (2, {5: 1.0}),
    ],
)
def test_others_stay_where_they_were_seen(seen, sampled, traced):
    assert seen(sampled, traced) == sampled


def test_a_line_that_calls_functions_in_python_has_samples_of_its_own(seen):
    assert seen(3, {3: 0.01, 4: 0.09, 5: 0.08, 6: 0.01}, calling=4) == 5
    assert seen(3, {3: 0.01, 4: 0.09, 5: 0.07, 6: 0.01}) == 4


def test_what_ran_below_a_line_was_seen_where_it_is(seen):
    assert seen(3, {4: 0.01, 5: 0.08}, leaf="numpy") == 3
    assert seen(3, {4: 0.01, 5: 0.08}, process="worker") == 3


CONDITIONAL = """\
def rank_sum(order, labels, wanted):
    hits, total = 0, 0.0
    for rank, j in enumerate(order, 1):
        if labels[j] == wanted:
            hits += 1
            total += hits / rank
    for j in order:
        if labels[j] == wanted:
            if j > 3:
                total += 1
    while order:
        if order[-1] in labels:
            total += len(order)
        order = order[:-1]
    for j in order:
        if labels[j] == wanted:
            total += labels.index(j)
    return total
"""


@pytest.mark.parametrize(
    ("sampled", "said"), [(6, 4), (5, 5), (10, 8), (13, 13), (14, 14), (17, 17), (3, 3), (4, 4), (2, 2), (18, 18)]
)
def test_a_loop_that_goes_back_in_the_last_line_of_a_condition_is_at_the_condition(seen, tmp_path, sampled, said):
    (tmp_path / "data.py").write_text(CONDITIONAL)
    assert seen(sampled, {}) == said
