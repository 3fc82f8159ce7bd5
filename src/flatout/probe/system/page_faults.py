"""How much of the steps the kernel spends on memory that the process gives back and takes anew: minor page faults."""

import mmap
import resource
from time import perf_counter

from flatout.probe.core.probe import Probe
from flatout.schema.facts import PageFaults
from flatout.schema.run import Causes, Step

__all__ = ["PROBE", "PageFaultWatch"]

_PAGES, _TIMES = 2048, 5  # of the memory whose first touch is timed


class PageFaultWatch:
    """Adds up the faults and the system time of this process's steps, but for the first of each epoch."""

    def __init__(self) -> None:
        """Nothing was counted yet."""
        self._steps = 0
        self._faults = 0
        self._system_s = self._wall_s = self._fault_s = 0.0
        self._before = (0, 0.0)

    def start(self) -> None:
        """Count from now on."""
        self._before = _used()

    def step(self, step: Step, number: int) -> None:
        """Take one finished step: what lay between epochs is no part of it."""
        now = _used()
        if not step.first_of_epoch:
            self._steps += 1
            self._faults += now[0] - self._before[0]
            self._system_s += now[1] - self._before[1]
            self._wall_s += step.wall_ns / 1e9
        self._before = now

    def measure(self, found: Causes) -> None:
        """Time what one fault takes on this machine."""
        if self._faults:
            self._fault_s = min(_touch_s() for _ in range(_TIMES)) / _PAGES

    def facts(self) -> PageFaults | None:
        """Return what was counted; None without steps."""
        if not self._steps:
            return None
        return PageFaults(
            steps=self._steps,
            faults=self._faults,
            system_s=self._system_s,
            wall_s=self._wall_s,
            fault_s=self._fault_s,
        )


def _used() -> tuple[int, float]:
    """Return minor page faults and seconds in the kernel of all threads of this process."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_minflt, spent.ru_stime


def _touch_s() -> float:
    """Return the seconds of the first touch of every page of a map."""
    with mmap.mmap(-1, _PAGES * mmap.PAGESIZE) as memory:
        begin = perf_counter()
        for at in range(0, _PAGES * mmap.PAGESIZE, mmap.PAGESIZE):
            memory[at] = 1
        return perf_counter() - begin


PROBE = Probe(
    name="page-faults",
    make=lambda deep: PageFaultWatch(),
    start=PageFaultWatch.start,
    step=PageFaultWatch.step,
    measure=PageFaultWatch.measure,
    trials={"page_faults": PageFaultWatch.facts},
)
