"""Two findings about one and the same time: the second says so."""

from dataclasses import replace

import pytest

from flatout.rules import example
from flatout.rules.core.same_time import with_same_time
from flatout.schema.finding import Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame

LINE = Frame("data.py", 34, "load")
SLOW = Finding(code="IN003", name="x", phase=Phase.INPUT, share=0.5, max_speedup=2.0, message="Slow.", location=LINE)
BREAKDOWN = example(step_ms=100, input=60, forward=30, outside_s={Phase.EPOCH_GAP: 2.0}).breakdown
SAID = "This is the same time as IN003 names: the two gains do not add up."


def second(**changes):
    other = replace(SLOW, code="IN007", message="Repeated.", **changes)
    first, found = with_same_time([SLOW, other], BREAKDOWN)
    assert first is SLOW
    return found.message


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"share": 0.05}, True),  # the same line
        ({"location": Frame("data.py", 9, "__getitem__"), "share": 0.3}, True),  # more than all of the input
        ({"location": Frame("data.py", 9, "collate"), "share": 0.1}, False),  # beside it
        ({"location": None, "share": 0.3}, True),
        ({"phase": Phase.FORWARD}, False),
        ({"share": 0.0}, False),
    ],
)
def test_it_is_said_of_one_line_and_of_shares_that_overlap(changes, same):
    assert second(**changes) == (f"Repeated. {SAID}" if same else "Repeated.")


def test_it_holds_between_the_steps_too():
    first = replace(SLOW, code="IN009", phase=Phase.EPOCH_GAP, share=0.2)
    other = replace(first, code="EP004", location=None, message="Gap.")
    assert "IN009 names" in with_same_time([first, other], BREAKDOWN)[1].message
    apart = replace(other, share=0.05)
    assert with_same_time([first, apart], BREAKDOWN)[1].message == "Gap."
