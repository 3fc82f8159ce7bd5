"""Ranks of one training: those that follow are switched as rank 0 is, whatever it tries."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.fixes.trial.test_alternation import Lever, a_step

from flatout.fixes.trial.alternation import Alternation
from flatout.fixes.trial.rank_switching import FollowingRank, LeadingRank
from flatout.schema.order import TimingOrder


def train_together(folder, factors, *, ranks=3, seed=0, base=False):
    """Train as several ranks whose steps end together; return what rank 0 wrote and how each rank stood, by step."""
    rng, written, stood = random.Random(seed), [], []
    levers = [[Lever(name) for name in factors] for _ in range(ranks)]
    for lever in (lever for mine in levers for lever in mine if base):
        lever.enable()
    order = TimingOrder(block_s=0.05, turns=str(folder), without=base)
    lead = Alternation(
        order, levers[0] if base else (), [[lever] for lever in levers[0]], lambda *what: written.append(what)
    )
    all_of_them = [
        LeadingRank(lead, folder),
        *(FollowingRank(order, [[lever] for lever in mine]) for mine in levers[1:]),
    ]
    over = [False] * ranks
    while not all(over):
        ms = 10 * rng.lognormvariate(0, 0.01)
        for lever, factor in zip(levers[0], factors.values(), strict=True):
            ms *= factor if lever.enabled else 1.0
        over = [done or each.step(a_step(ms)) for done, each in zip(over, all_of_them, strict=True)]
        stood.append([tuple(lever.enabled for lever in mine) for mine in levers])
        assert len(stood) < 100_000
    return [body["decision"] for kind, body in written if kind == "arm"], stood


@pytest.mark.parametrize("base", [False, True])
@given(st.lists(st.sampled_from([0.7, 1.0, 1.3]), min_size=1, max_size=3), st.integers(0, 99))
@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_rank_is_switched_as_rank_0_is(tmp_path_factory, base, factors, seed):
    named = {f"fix{number}": factor for number, factor in enumerate(factors)}
    _, stood = train_together(tmp_path_factory.mktemp("turns"), named, seed=seed, base=base)
    assert all(len(set(ranks)) == 1 for ranks in stood)
    assert set(stood[-1][0]) == {base}


def test_ranks_find_what_one_process_finds(tmp_path):
    assert train_together(tmp_path, {"slow": 1.3, "fast": 0.7})[0] == ["slower", "faster"]


def test_a_rank_goes_on_training_while_nothing_was_told(tmp_path):
    lever = Lever("fast")
    follower = FollowingRank(TimingOrder(turns=str(tmp_path)), [[lever]])
    assert not any(follower.step(a_step(10)) for _ in range(5))
    (tmp_path / "switch").write_text("garbage")
    assert not follower.step(a_step(10))
    assert not lever.enabled
