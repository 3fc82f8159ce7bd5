"""Page faults of steps are counted, and what lies between epochs is not."""

import mmap

from flatout.probe.system.page_faults import PageFaultWatch
from flatout.schema.run import Causes, Step

PAGES = 512


def touch():
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        for at in range(0, PAGES * mmap.PAGESIZE, mmap.PAGESIZE):
            memory[at] = 1


def step(first=False):
    return Step(start_ns=0, wall_ns=10**7, phases_ns=(0,) * 8, first_of_epoch=first)


def test_pages_that_a_step_touches_first_are_counted():
    watch = PageFaultWatch()
    assert watch.facts() is None
    watch.start()
    for number in range(1, 5):
        touch()
        watch.step(step(), number)
    touch()
    watch.step(step(first=True), 5)
    watch.measure(Causes())
    found = watch.facts()
    assert found.steps == 4
    assert 4 * PAGES <= found.faults < 5 * PAGES
    assert found.wall_s == 0.04
    assert 1e-8 < found.fault_s < 1e-3
