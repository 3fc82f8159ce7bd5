"""What a change can give at most."""

from dataclasses import replace

import pytest

from flatout.rules import example
from flatout.rules.core.bounds import (
    MAX_SPEEDUP,
    handover_s,
    input_gain,
    speedup_of_input,
    speedup_of_waits,
    speedup_on_freed_cores,
    speedup_with_workers,
    speedup_without,
    taken_by_workers,
)
from flatout.schema.facts import HELD_INPUT
from flatout.schema.run import Ceiling, Environment, LoaderFacts, Utilization

LOADER = LoaderFacts(is_training=True, sample_s=0.05, batch_bytes=1_700_000)


def bound(cores, cpu_share=1.0, used=None, **phases):
    samples = tuple(Utilization(at_s=0.5 * i, main_cpu=used) for i in range(10)) if used else ()
    truth = example(step_ms=100, **phases, environment=Environment(num_cpus=cores), utilization=samples)
    return speedup_with_workers(truth.run, truth.breakdown, LOADER, cpu_share)


def test_a_share_of_the_step_gives_its_inverse():
    assert speedup_without(0.0) == 1.0
    assert speedup_without(0.5) == 2.0
    assert speedup_without(1.0) == MAX_SPEEDUP
    assert speedup_without(-0.3) == 1.0


def test_without_workers_the_gain_is_the_part_of_the_wait():
    truth = example(step_ms=100, input=50)
    assert input_gain(truth.breakdown, LOADER, 0.5) == pytest.approx(0.25)


def test_with_workers_the_same_part_of_the_step_goes_but_never_more_than_the_wait():
    truth = example(step_ms=100, input=30)
    workers = LoaderFacts(num_workers=2)
    assert input_gain(truth.breakdown, workers, 0.2) == pytest.approx(0.2)
    assert input_gain(truth.breakdown, workers, 0.9) == pytest.approx(0.3)


def crowded(own=0.9, workers=1.1, threads=2, kind="cpu"):
    samples = tuple(Utilization(at_s=0.5 * i, main_cpu=own, worker_cpu=workers) for i in range(10))
    machine = Environment(num_cpus=2, torch_threads=threads, device_kind=kind)
    return example(step_ms=100, input=17, forward=83, environment=machine, utilization=samples)


def test_workers_that_take_the_cores_of_a_training_hide_a_larger_gain_than_its_wait():
    truth, workers = crowded(), LoaderFacts(num_workers=2)
    assert speedup_without(input_gain(truth.breakdown, workers, 1.0)) == pytest.approx(1.2, rel=0.01)
    assert speedup_of_input(truth.run, truth.breakdown, workers, 1.0) == pytest.approx(2 / 0.9)
    assert speedup_on_freed_cores(truth.run, workers, 0.5) == pytest.approx(2 / 1.45)  # what is left needs its cores


def test_what_workers_take_counts_only_where_it_is_more_than_the_wait():
    truth, workers = crowded(own=0.65, workers=1.3, threads=1), LoaderFacts(num_workers=2)
    assert taken_by_workers(truth.run, truth.breakdown, workers, 0.9) == pytest.approx((0.35, 1.3))
    waits = example(step_ms=100, input=60, forward=40, environment=truth.run.environment)
    assert taken_by_workers(truth.run, waits.breakdown, workers, 0.9) == (0.0, 0.0)
    few = tuple(replace(each, worker_cpu=0.12, foreign_cpu=1.6) for each in truth.run.utilization)
    disturbed = replace(truth.run, utilization=few)
    assert taken_by_workers(disturbed, truth.breakdown, workers, 0.9) == (0.0, 0.0)
    held = (Ceiling(ceiling=HELD_INPUT, median_ms=80, speedup=1.25, low=1.2, high=1.3, num_pairs=8),)
    assert taken_by_workers(truth.run, truth.breakdown, workers, 0.9, held) == pytest.approx((0.2, 1.3))


def test_work_on_the_cores_stays_when_nothing_waits_any_more():
    samples = tuple(Utilization(at_s=0.5 * i, main_cpu=0.2, worker_cpu=0.05) for i in range(10))
    truth = example(step_ms=100, input=98, environment=Environment(num_cpus=2), utilization=samples)
    assert speedup_of_waits(truth.run, truth.breakdown) == pytest.approx(2 / 0.25)
    unseen, busy = example(step_ms=100, input=98), crowded(own=1.2, workers=1.1)
    assert speedup_of_waits(unseen.run, unseen.breakdown) == MAX_SPEEDUP
    assert speedup_of_waits(busy.run, busy.breakdown) == 1.0


@pytest.mark.parametrize(
    ("truth", "workers"),
    [
        pytest.param(crowded(), 0, id="no workers"),
        pytest.param(crowded(workers=0.4), 2, id="a core is free"),
        pytest.param(crowded(threads=1, own=1.0), 2, id="one thread"),
        pytest.param(crowded(kind="cuda"), 2, id="the device computes"),
    ],
)
def test_where_nothing_is_taken_nothing_is_gained(truth, workers):
    assert speedup_on_freed_cores(truth.run, LoaderFacts(num_workers=workers), 1.0) == 1.0


def test_handing_over_a_batch_costs_its_copy():
    assert handover_s(LOADER) == pytest.approx(0.0012)


def test_many_cores_hide_all_loading():
    assert bound(8, input=60) == pytest.approx(100 / 40.2, rel=0.01)


def test_two_cores_share_the_work():
    assert bound(2, input=60) == pytest.approx(2 / 1.012, rel=0.01)


def test_cores_that_are_busy_already_leave_nothing():
    assert bound(2, used=2.0, input=60) == 1.0


def test_waiting_needs_no_core():
    assert bound(1, cpu_share=0.0, input=60) == pytest.approx(100 / 41.2, rel=0.01)
    assert bound(1, cpu_share=1.0, input=60) == 1.0
