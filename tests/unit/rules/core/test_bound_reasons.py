"""A share and a bound that do not fit each other have their reason."""

import pytest

from flatout.rules import examine, example
from flatout.rules.core.bound_reasons import with_reason
from flatout.rules.core.catalog import rule_of
from flatout.schema.facts import HELD_INPUT
from flatout.schema.finding import Ceiling, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, LoaderFacts, Utilization

TWO = Environment(num_cpus=2, torch_threads=2)
WORKERS = LoaderFacts(is_training=True, num_workers=2)
CROWDED = tuple(Utilization(at_s=0.5 * i, main_cpu=0.5, worker_cpu=1.5) for i in range(12))


def reason(share, most, *, phase=Phase.INPUT, said="", headroom=(), **detail):
    finding = Finding(code="IN010", name="x", phase=phase, share=share, max_speedup=most, message="n=1", bound_by=said)
    return with_reason(finding, example(step_ms=100, input=33, forward=60, **detail).run, headroom).bound_by


@pytest.mark.parametrize(("share", "most"), [(0.5, 2.0), (0.5, 2.15), (0.5, 1.85), (0.33, 1.0), (0.0, 4.0)])
def test_where_they_fit_or_one_is_not_shown_there_is_none(share, most):
    assert reason(share, most) == ""
    assert reason(share, most, said="a rule's own") == ""


def test_the_rules_own_reason_comes_first():
    assert reason(0.33, 4.7, said="it is so") == "it is so"


def test_workers_that_share_the_cores_give_more_than_the_wait():
    found = reason(0.33, 3.5, environment=TWO, loaders=(WORKERS,), utilization=CROWDED)
    assert found == "workers and the training share 2 cores"


def test_a_ceiling_that_was_measured_is_the_reason():
    held = Ceiling(ceiling=HELD_INPUT, median_ms=20.0, speedup=4.7, low=4.6, high=4.8, num_pairs=8)
    assert "replay one batch are 4.7x as fast" in reason(0.33, 4.7, headroom=(held,))


@pytest.mark.parametrize(
    ("most", "phase", "loaders", "said"),
    [
        (4.7, Phase.INPUT, (WORKERS,), "as long as its workers need"),
        (4.7, Phase.INPUT, (), "what follows it"),
        (4.7, Phase.HOST, (), "what follows it"),
        (1.2, Phase.INPUT, (WORKERS,), "while the step runs"),
        (1.2, Phase.HOST, (), "a part of that work stays"),
    ],
)
def test_there_is_always_one(most, phase, loaders, said):
    assert said in reason(0.33, most, phase=phase, loaders=loaders)


def test_a_ceiling_that_lowers_a_bound_says_so():
    held = Ceiling(ceiling=HELD_INPUT, median_ms=84.0, speedup=1.19, low=1.17, high=1.21, num_pairs=8)
    truth = example(step_ms=100, input=30, forward=60, headroom=(held,))
    found = examine(truth.run, truth.breakdown, truth.headroom, [rule_of("IN001")]).findings[0]
    assert found.max_speedup == pytest.approx(1.19)
    assert found.bound_by == "measured: steps that replay their input give no more"
