"""An exchange is told from waiting for the last rank, and a rank that is always last from one that happens to be."""

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from flatout.rules import example
from flatout.rules.di001_straggler import RULE as STRAGGLER
from flatout.rules.facts.gradient_exchanges import exposed, last_by_size
from flatout.schema.run import Exchange, RankSummary

exchanges_ms = st.lists(st.floats(0.1, 20), min_size=12, max_size=12)


def ranks(waits_ms, sizes=None, own_ms=None):
    """Return ranks by what each exchange took alone on each of them, in milliseconds."""
    return tuple(
        RankSummary(
            rank=number,
            num_steps=60,
            median_ms=100.0,
            phases_ms={"forward": (own_ms or [50.0] * len(waits_ms))[number], "backward": 30.0},
            exchange=Exchange(
                steps=12,
                exchanges=1.0,
                exposed_s={str(i): ms / 1000 for i, ms in enumerate(own)},
                elements={str(i): (sizes or [[1] * 12] * len(waits_ms))[number][i] for i in range(12)},
                step_s=0.1,
            ),
        )
        for number, own in enumerate(waits_ms)
    )


@given(exchanges_ms, st.lists(exchanges_ms, min_size=1, max_size=3))
def test_waiting_is_what_a_rank_has_beyond_the_last_one(itself_ms, extra_ms):
    """The first rank is the last to come each time: what it takes is the exchange itself."""
    waits = [itself_ms, *([a + b for a, b in zip(itself_ms, extra, strict=True)] for extra in extra_ms)]
    found = exposed(example(ranks=ranks(waits)).run)
    assert found.n == 12
    assert found.itself_s * 1000 == approx(sorted(itself_ms)[5] / 2 + sorted(itself_ms)[6] / 2)
    mean_extra = sum(map(sum, extra_ms)) / 12 / len(waits)
    assert found.waiting_s * 1000 == approx(mean_extra, abs=1e-6)


def test_nothing_is_said_unless_every_rank_has_clocked_the_same_exchanges():
    whole = ranks([[5.0] * 12] * 2)
    assert exposed(example(ranks=whole).run) is not None
    assert exposed(example(ranks=whole[:1]).run) is None
    late = {str(i + 5): 0.005 for i in range(12)}
    other = RankSummary(rank=1, num_steps=60, median_ms=100.0, exchange=Exchange(steps=12, exposed_s=late, step_s=0.1))
    assert exposed(example(ranks=(whole[0], other)).run) is None
    assert exposed(example(ranks=(whole[0], RankSummary(rank=1, num_steps=60, median_ms=100.0))).run) is None


def test_a_rank_that_is_last_by_chance_is_no_straggler():
    sizes = [[2, 5, 3, 4, 1, 6] * 2, [4, 2, 5, 1, 6, 3] * 2]
    longest = [max(step) for step in zip(*sizes, strict=True)]
    waits = [[1.0 + most - own for own, most in zip(each, longest, strict=True)] for each in sizes]
    by_chance = example(step_ms=100, forward=50, ranks=ranks(waits, sizes, own_ms=[50.0, 58.0]))
    found = last_by_size(by_chance.run)
    assert (found.steps, found.explained) == (12, 12)
    assert STRAGGLER.check(by_chance.run, by_chance.breakdown, ()) is None
    always = example(step_ms=100, forward=50, ranks=ranks(waits, [[9] * 12, [1] * 12], own_ms=[50.0, 58.0]))
    assert last_by_size(always.run) is None
    assert STRAGGLER.check(always.run, always.breakdown, ()) is not None
