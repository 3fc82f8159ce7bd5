"""A tune beside other programs says so at once, and gives its trials more time where nobody has given the budget.

Modules: flatout.engine.tune.
"""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import healthy

from flatout.engine.trial.pace import Pace
from flatout.engine.tune import TuneLimits, _beside_others
from flatout.report.tune_summary import headline
from flatout.rules import example
from flatout.rules.facts.machine_facts import busy_in_words, slowdown
from flatout.schema.run import Environment, Utilization


def recorded(foreign, wait):
    looks = tuple(Utilization(at_s=0.5 * i, main_cpu=0.6, foreign_cpu=foreign, core_wait=wait) for i in range(12))
    return example(step_ms=100, forward=50, utilization=looks, environment=Environment(num_cpus=2)).run


@pytest.mark.parametrize(
    ("foreign", "wait", "patience", "budget_s"),
    [(1.4, 0.4, 2.0, 500.0), (1.4, 0.8, 2.0, 600.0), (1.4, 0.4, 1.0, 300.0), (0.1, 0.4, 2.0, 300.0)],
)
def test_the_budget_is_as_many_times_longer_as_steps_are_up_to_the_patience(foreign, wait, patience, budget_s):
    told = []
    report = replace(healthy(), run=recorded(foreign, wait))
    after, limits = _beside_others(report, TuneLimits(patience=patience), told.append)
    assert limits.budget_s == pytest.approx(budget_s)
    assert bool(after.run.notes) is (budget_s > 300)
    assert [each.stage.startswith("a busy machine: other processes used ") for each in told] == [True] * (foreign > 1)


def test_what_others_use_is_told_with_what_it_makes_of_a_step():
    assert busy_in_words(recorded(1.4, 0.4)) == (
        "other processes used 1.40 of 2 cores while the steps ran (n=12), and the training waited for a core 40% of "
        "the time (steps take at least 1.67x as long)"
    )
    assert busy_in_words(recorded(1.4, 0.01)).endswith("while the steps ran (n=12)")
    assert busy_in_words(recorded(0.1, 0.4)) == ""
    assert slowdown(recorded(0.1, 0.4)) == 1.0


@pytest.mark.parametrize(("foreign", "told"), [(1.4, True), (0.1, False)])
def test_a_tune_that_tried_nothing_names_the_busy_machine(foreign, told):
    said = headline(replace(healthy(), run=recorded(foreign, 0.4)))
    assert said.startswith("Nothing was tried: ")
    assert ("The machine was busy: other processes used 1.40 of 2 cores" in said) is told


@pytest.mark.parametrize(
    ("foreign", "machine", "sleeps"),
    [
        (1.4, {}, True),
        (0.1, {}, False),
        (1.4, {"torch_threads": 1}, False),
        (1.4, {"device_kind": "cuda"}, False),
        (1.4, {"variables": {"GOMP_SPINCOUNT": "0"}}, False),
    ],
)
def test_threads_that_wait_sleep_on_both_sides_of_a_trial(monkeypatch, foreign, machine, sleeps):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    run = recorded(foreign, 0.01)
    run = replace(run, environment=replace(run.environment, **{"torch_threads": 2, **machine}))
    report = replace(healthy(), run=run)
    assert Pace.of(report).environment == ({"OMP_WAIT_POLICY": "PASSIVE"} if sleeps else {})
    after, _ = _beside_others(report, TuneLimits(), lambda progress: None)
    assert any("waiting threads slept" in note for note in after.run.notes) is sleeps


def test_whoever_says_how_threads_wait_is_left_alone(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    run = recorded(1.4, 0.01)
    run = replace(run, environment=replace(run.environment, torch_threads=2))
    assert not Pace.of(replace(healthy(), run=run)).sleeps
