"""The host's time to launch kernels beside the kernels' own; and the stages between which input is held.

Modules: flatout.rules.facts.input_stages.
"""

import pytest

from flatout.rules import example
from flatout.rules.facts import input_stages
from flatout.rules.facts.launches import launches
from flatout.schema.facts import HELD_INPUT, HELD_RAW, HELD_SAMPLES
from flatout.schema.run import Causes, Convolutions, DeviceWork, Environment

CUDA = Environment(device="H200", device_kind="cuda")
WORK = DeviceWork(num_steps=4, wall_s=0.4, busy_s=0.1, num_kernels=1200, seconds={"kernel": 0.02, "copy": 0.5})


def seen(work=WORK, environment=CUDA, convolutions=None, **phases_ms):
    causes = Causes(device_work=work, convolutions=convolutions)
    phases_ms = phases_ms or {"forward": 40, "backward": 30, "optimizer": 10}
    truth = example(step_ms=100, environment=environment, causes=causes, **phases_ms)
    return launches(truth.run, truth.breakdown)


def test_kernels_are_counted_a_step_and_compared_with_the_hosts_time():
    found = seen()
    assert found.number == 300
    assert found.each_s == pytest.approx(0.02 / 1200)
    assert found.kernels_ms == pytest.approx(5.0)
    assert found.host_ms == pytest.approx(80.0)
    assert found.share == pytest.approx(0.75)
    assert found.busy == pytest.approx(0.25)
    assert (found.leave_idle, found.many_and_short) == (True, True)


@pytest.mark.parametrize(
    ("kernel_s", "number", "idle", "short"),
    [
        (0.16, 1200, True, False),  # 40 ms of 80
        (0.164, 1200, False, False),
        (0.02, 399, True, False),  # too few
        (0.031, 1200, True, False),  # 26 us each
        (0.0, 1200, False, True),
    ],
)
def test_bounds(kernel_s, number, idle, short):
    found = seen(DeviceWork(num_steps=4, num_kernels=number, seconds={"kernel": kernel_s}))
    assert (found.leave_idle, found.many_and_short) == (idle, short)
    assert found.busy == 0.0


def test_a_small_part_of_the_step_leaves_nothing_idle():
    assert not seen(forward=14).leave_idle


@pytest.mark.parametrize(
    "change",
    [
        {"work": None},
        {"work": DeviceWork(num_steps=0, num_kernels=5)},
        {"work": DeviceWork(num_steps=4, num_kernels=0)},
        {"environment": Environment()},
        {"convolutions": Convolutions(search="on", steps=10, new_steps=5)},
    ],
)
def test_without_a_device_or_where_it_is_searched_for_algorithms_nothing_is_said(change):
    assert seen(**change) is None


@pytest.mark.parametrize(("search", "new"), [("off", 10), ("on", 4)])
def test_few_searches_do_not_matter(search, new):
    assert seen(convolutions=Convolutions(search=search, steps=10, new_steps=new)) is not None


def test_the_stages_of_a_batch_meet_end_to_end():
    assert input_stages.READING == ("", HELD_RAW)
    assert (HELD_RAW, HELD_SAMPLES) == input_stages.TRANSFORMS
    assert (HELD_SAMPLES, HELD_INPUT) == input_stages.COLLATE
    assert input_stages.SAMPLES[1] == input_stages.COLLATE[0]
    assert input_stages.WHOLE_INPUT[1] == input_stages.COLLATE[1]
