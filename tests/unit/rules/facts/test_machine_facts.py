"""What the machine did while the steps ran, and whether cores are shared."""

from dataclasses import replace

import pytest

from flatout.rules import example
from flatout.rules.facts.machine_facts import (
    all_cores_busy,
    cores_are_shared,
    cores_in_use,
    foreign_cores,
    is_disturbed,
    num_processes,
    waited_for_cores,
    while_steps_ran,
)
from flatout.schema.run import Causes, Environment, Header, RankSummary, SettingTrial, Utilization

HEADER = Header(script="train.py", launched_ns=-2_000_000_000)  # the steps take from second 2 to second 8


def sampled(*samples, **detail):
    detail.setdefault("environment", Environment(num_cpus=4))
    return example(step_ms=100, n=60, header=HEADER, utilization=samples, **detail).run


def at(second, main=1.0, worker=0.5, foreign=0.0):
    return Utilization(at_s=second, main_cpu=main, worker_cpu=worker, foreign_cpu=foreign)


def test_samples_before_the_first_step_and_after_the_last_do_not_count():
    run = sampled(at(1.9, main=9), at(2.0), at(8.0, main=2), at(8.1, main=9))
    assert [sample.at_s for sample in while_steps_ran(run)] == [2.0, 8.0]
    assert cores_in_use(run) == pytest.approx(2.0)


def test_without_samples_or_steps_nothing_is_known():
    assert cores_in_use(sampled()) is None
    assert foreign_cores(sampled()) == 0.0
    assert while_steps_ran(example(n=0, utilization=(at(3),)).run) == ()


def test_the_wait_for_a_core_is_the_mean_while_steps_ran():
    looks = [replace(at(second), core_wait=wait) for second, wait in ((1.0, 0.9), (3.0, 0.2), (4.0, 0.4))]
    assert waited_for_cores(sampled(*looks)) == pytest.approx(0.3)
    assert waited_for_cores(sampled()) == 0.0


@pytest.mark.parametrize(("foreign", "disturbed"), [(0.25, False), (0.26, True)])
def test_a_quarter_of_a_core_of_others_is_allowed(foreign, disturbed):
    assert is_disturbed(sampled(at(3, foreign=foreign))) is disturbed


@pytest.mark.parametrize(("main", "foreign", "busy"), [(3.4, 0.0, True), (3.3, 0.0, False), (2.0, 1.4, True)])
def test_cores_are_all_busy_whoever_uses_them(main, foreign, busy):
    assert all_cores_busy(sampled(at(3, main=main, worker=0.0, foreign=foreign))) is busy


def ranks(*numbers):
    return tuple(RankSummary(rank=number, num_steps=9, median_ms=1.0) for number in numbers)


def shared(threads=2, kind="cpu", number=4, share=None):
    trial = SettingTrial(switch="threads", share=share or 0.0, steps=8)
    causes = Causes(prices=(trial,) if share is not None else ())
    environment = Environment(num_cpus=4, torch_threads=threads, device_kind=kind)
    return cores_are_shared(sampled(environment=environment, causes=causes, ranks=ranks(*range(number))))


def test_ranks_with_more_threads_than_cores_share_them():
    assert shared()
    assert not shared(number=2)
    assert not shared(threads=1, number=8)  # no setting helps
    assert not shared(kind="cuda")
    assert shared(share=0.1)
    assert not shared(share=-0.1)  # fewer were tried, and slower


def test_processes_that_all_report_rank_0_are_counted_where_threads_were_tried():
    trial = SettingTrial(switch="threads", steps=8)
    assert num_processes(sampled(ranks=ranks(0, 1, 1))) == 2
    assert num_processes(sampled(ranks=ranks(0, 0, 0))) == 1
    assert num_processes(sampled(ranks=ranks(0, 0, 0), causes=Causes(prices=(trial,)))) == 3
