"""A tune that could not decide says how much more time would."""

import pytest

from flatout.engine.tune import undecided_in_time
from flatout.schema.trial import Candidate, Comparison, Equivalence, Pair, Selection, Trial, Verdict


def trial(fix, verdict, pairs=0):
    candidate = Candidate(selection=Selection(fix), equivalence=Equivalence.BITWISE)
    comparison = Comparison(
        pairs=(Pair(2.0, 1.0),) * pairs, speedup=1.0, low=0.9, high=1.1, decision="undecided", looks=1, alpha=0.02
    )
    return Trial(number=1, candidate=candidate, verdict=verdict, comparison=comparison if pairs else None)


def test_nothing_is_said_where_everything_is_decided():
    assert undecided_in_time([trial("gc-control", Verdict.SLOWER, 6), trial("tf32", Verdict.KEPT, 6)], 60.0) == []


@pytest.mark.parametrize(
    ("pairs", "budget_s", "said"),
    [
        ((2,), 60.0, "gc-control stayed undecided after 2 pairs: neither faster nor ruled out; more time gives"),
        ((1,), 10.0, "after 1 pair: "),
        ((0, 3), 300.0, "2 candidates stayed undecided after 0 to 3 pairs: "),
        ((2, 2), 300.0, "--budget 15m"),
    ],
)
def test_the_pairs_and_a_larger_budget_are_named(pairs, budget_s, said):
    [told] = undecided_in_time([trial("gc-control", Verdict.UNDECIDED, number) for number in pairs], budget_s)
    assert said in told
