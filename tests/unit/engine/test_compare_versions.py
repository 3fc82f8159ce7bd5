"""How two checkouts take turns: programs of one thread share a core and switch often, others neither."""

import os
import threading

import pytest

from flatout.analysis.breakdown import account
from flatout.engine.compare_versions import PAIRS, pace_of, pairs_in
from flatout.engine.trial.pace import SHORTEST_TURN_S
from flatout.fixes.trial.turns import stay_on
from flatout.schema.facts import LoaderFacts
from flatout.schema.phase import STEP_PHASES
from flatout.schema.report import Report
from flatout.schema.run import Environment, Header, Run, Step, Utilization

MS = 1_000_000

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")


def recording(*, step_ms=4.0, main=1.0, workers=0.0, num_workers=0, ranks=1, kind="cpu"):
    """Return the Report of a training whose processes keep so many cores busy."""
    count = max(40, round(2000 / step_ms))
    wall = round(step_ms * MS)
    phases = (0,) * (len(STEP_PHASES) - 1) + (wall,)
    run = Run(
        header=Header(script="train.py", launched_ns=0, world_size=ranks),
        environment=Environment(device=kind, device_kind=kind),
        steps=tuple(Step(start_ns=MS + number * wall, wall_ns=wall, phases_ns=phases) for number in range(count)),
        loaders=(LoaderFacts(is_training=True, num_workers=num_workers, prefetch_factor=2),),
        utilization=tuple(Utilization(at_s=0.5 * i, main_cpu=main, worker_cpu=workers) for i in range(1, 4)),
    )
    return Report(run=run, breakdown=account(run))


def test_programs_of_one_thread_share_a_core_and_switch_often():
    pace = pace_of([recording(), recording(main=1.1)])
    assert pace.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert (pace.turn_s, pace.block_s) == (0.1, 0.1)
    assert pairs_in(pace) * pace.turns_s == pytest.approx(12, rel=0.05)


@pytest.mark.parametrize(
    "other",
    [
        {"main": 1.9},
        {"num_workers": 1},
        {"workers": 0.5},
        {"ranks": 2},
        {"kind": "cuda"},
    ],
)
def test_where_either_program_needs_more_both_go_where_the_system_puts_them(other):
    for reports in ([recording(), recording(**other)], [recording(**other), recording()]):
        pace = pace_of(reports)
        assert (pace.cores, pace.turn_s) == ((), SHORTEST_TURN_S)


def test_a_block_has_four_steps_and_a_start_no_fewer_pairs_where_steps_are_long():
    pace = pace_of([recording(step_ms=300.0)] * 2)
    assert pace.block_s == pytest.approx(1.2)
    assert pairs_in(pace) == PAIRS


def test_the_slower_program_and_the_longer_queue_say_what_a_block_is():
    pace = pace_of([recording(step_ms=100.0, num_workers=2), recording(step_ms=200.0)])
    assert (pace.block_s, pace.skip) == (pytest.approx(0.8), 6)


def test_a_thread_stays_on_its_core_and_the_others_where_they_are():
    before, core, inside = os.sched_getaffinity(0), min(os.sched_getaffinity(0)), []

    def train():
        stay_on(core)
        inside.append(os.sched_getaffinity(0))
        stay_on(max(before) + 1)  # one it may not use
        stay_on(-1)
        inside.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert inside == [{core}, {core}]
    assert os.sched_getaffinity(0) == before
