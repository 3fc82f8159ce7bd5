"""What a worker tries with its threads: one in every other stretch, counted where all of a batch lies inside."""

import pytest

from flatout.probe.loader import worker_thread_trial
from flatout.probe.loader.worker_thread_trial import ThreadTrial


@pytest.fixture
def machine(monkeypatch):
    """A worker whose threads and clock are figures of ours."""
    state = {"threads": 8, "now": 0.0}
    monkeypatch.setattr(worker_thread_trial, "get_num_threads", lambda: state["threads"])
    monkeypatch.setattr(worker_thread_trial, "set_num_threads", lambda number: state.update(threads=number))
    return state


def make_batches(trial, machine, count, sets_its_own=False):
    """Make batches: 30 ms with several threads, 10 ms with one, of which 9 ms on a core."""
    seen = []
    for _ in range(count):
        trial.before()
        if sets_its_own:
            machine["threads"] = 8
        taken = 0.010 if machine["threads"] == 1 else 0.030
        seen.append(machine["threads"])
        machine["now"] += taken
        trial.after(taken, 0.9 * taken)
    return seen


def test_both_numbers_are_timed_and_the_scripts_own_comes_back(machine):
    trial = ThreadTrial(lambda: machine["now"])
    seen = make_batches(trial, machine, 600)
    facts = trial.facts()
    assert (facts.several_s, facts.single_s, facts.n >= 10) == (0.030, 0.010, True)
    assert facts.cpu_s == pytest.approx(0.009)
    assert {1, 8} == set(seen)
    trial.end()
    assert machine["threads"] == 8
    assert trial.before() is False


def test_one_thread_is_left_as_it_is(machine):
    machine["threads"] = 1
    trial = ThreadTrial(lambda: machine["now"])
    assert set(make_batches(trial, machine, 300)) == {1}
    assert trial.facts().n == 0


def test_a_data_set_that_sets_its_threads_for_each_sample_ends_the_trial(machine):
    trial = ThreadTrial(lambda: machine["now"])
    assert set(make_batches(trial, machine, 300, sets_its_own=True)) == {8}
    assert trial.facts().n == 0
    assert machine["threads"] == 8
    assert trial.before() is False


def test_threads_set_at_the_first_sample_are_the_scripts(machine):
    machine["threads"] = 1
    trial = ThreadTrial(lambda: machine["now"])
    trial.before()
    machine["threads"] = 8
    trial.after(0.03, 0.03)
    make_batches(trial, machine, 100)
    assert trial.own == 8
    assert trial.facts().n > 0


def test_the_first_batches_are_the_scripts(machine):
    machine["now"] = 0.5  # in a stretch of one thread
    trial = ThreadTrial(lambda: machine["now"])
    assert make_batches(trial, machine, 4) == [8, 8, 8, 1]


def test_batches_too_long_for_a_stretch_are_left_alone(machine):
    trial = ThreadTrial(lambda: machine["now"])
    for _ in range(20):
        assert trial.before() is False
        machine["now"] += 0.3
        trial.after(0.3, 0.3)
    assert (trial.facts().n, machine["threads"]) == (0, 8)


def test_a_batch_that_ends_in_another_stretch_counts_for_neither(machine):
    trial = ThreadTrial(lambda: machine["now"])
    make_batches(trial, machine, 3)
    for _ in range(40):
        trial.before()
        machine["now"] += 0.4
        trial.after(0.4, 0.4)
    assert trial.facts().n == 0
