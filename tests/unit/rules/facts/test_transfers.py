"""What copies cost a step: never what its kernels take, which the host waited for in a copy."""

import pytest

from flatout.rules import example
from flatout.rules.facts.transfers import lost
from flatout.schema.run import Causes, Convolutions, DeviceWork, Environment, Frame, Transfer

GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
COPY = Transfer(direction="to_device", place=Frame("train.py", 41, "train"), count=20, seconds=0.2)


def kernels(ms):
    return DeviceWork(num_steps=4, wall_s=0.4, busy_s=0.3, num_kernels=40, seconds={"kernel": ms * 4 / 1e3})


@pytest.mark.parametrize(
    ("work", "share"),
    [
        (None, 0.75),  # nothing is known of the device
        (kernels(10), 0.75),
        (kernels(60), 0.40),  # 60 of 100 ms stay, whatever becomes of the copies
        (kernels(120), 0.0),  # as the profiler saw them: slower than the timed run
    ],
)
def test_what_the_kernels_take_does_not_go_with_the_copies(work, share):
    seen = example(
        step_ms=100, transfer=75, forward=20, environment=GPU, causes=Causes(transfers=(COPY,), device_work=work)
    )
    assert lost(seen.run, seen.breakdown, 0.2) == pytest.approx(share)
    assert lost(seen.run, seen.breakdown, 0.1) == pytest.approx(min(share, 0.375))


def test_kernels_of_a_search_for_algorithms_say_nothing_of_other_steps():
    searching = Convolutions(search="on", steps=8, new_steps=8)
    causes = Causes(transfers=(COPY,), device_work=kernels(60), convolutions=searching)
    seen = example(step_ms=100, transfer=75, forward=20, environment=GPU, causes=causes)
    assert lost(seen.run, seen.breakdown, 0.2) == pytest.approx(0.75)
