"""What is known of a script when trials begin: how long a step, the start and a pair of blocks take."""

import os
from dataclasses import dataclass

from flatout.rules.facts.machine_facts import is_disturbed
from flatout.schema.phase import Phase
from flatout.schema.report import Report
from flatout.schema.run import Run

__all__ = ["SHORTEST_TURN_S", "Pace"]

SHORTEST_TURN_S = 0.4
"""Of a block of one of two processes that take turns, unless the training is too short for that."""

_BLOCK_S, _LONGEST_BLOCK_S, _BLOCK_STEPS = 0.25, 4.0, 4
_ALONE_S = 1.5  # of a process that is one block, at least
_TWO_AT_ONCE = 1.5  # times as long as alone is what the start of two processes takes
_WAITS = "OMP_WAIT_POLICY"
_SAID = frozenset({_WAITS, "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
_LEAVING_S = 2.0  # from the end of such a block to the end of the process


def _needs_sleep(run: Run) -> bool:
    """Return whether several threads compute beside other programs, and nobody has said how they wait.

    Threads of OpenMP that wait spin, on a core that another program then takes from the thread they wait for. Steps of
    two threads on two cores, with five other processes, were 1.5, 1.6, 2.1 and 4.0 times as fast where they sleep
    instead (n=4 pairs of runs, a small convolutional network, torch 2.13), with the same losses.
    """
    machine = run.environment
    several = machine.device_kind == "cpu" and machine.torch_threads > 1
    return several and is_disturbed(run) and not _SAID.intersection(machine.variables) and not _SAID & os.environ.keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The pace of a script."""

    step_s: float = 0.01
    first_step: int = 1  # of the script's, that is timed
    startup_s: float = 0.0
    skip: int = 2  # steps left out after each switch
    block_s: float = _BLOCK_S
    together: bool = False  # several ranks of one training
    turn_s: float = SHORTEST_TURN_S  # of a block of one of two processes that take turns, at least
    sleeps: bool = False  # threads that wait for each other sleep, for other programs need the cores
    cores: tuple[int, ...] = ()  # on one of which the training threads of both stay, on another each start

    @classmethod
    def of(cls, report: Report) -> "Pace":
        """Return the pace of the script that `report` is about."""
        step_s = report.breakdown.median_ms / 1e3
        loaders = [loader for loader in report.run.loaders if loader.is_training]
        queued = max((loader.num_workers * max(2, loader.prefetch_factor) for loader in loaders), default=0)
        return cls(
            step_s=step_s,
            first_step=report.run.first_step,
            startup_s=report.breakdown.outside_s(Phase.STARTUP),
            skip=2 + queued,
            block_s=max(_BLOCK_S, min(_LONGEST_BLOCK_S, _BLOCK_STEPS * step_s)),
            together=report.run.header.world_size > 1,
            sleeps=_needs_sleep(report.run),
        )

    @property
    def environment(self) -> dict[str, str]:
        """Variables that both sides of a trial get."""
        return {_WAITS: "PASSIVE"} if self.sleeps else {}

    @property
    def steady_s(self) -> float:
        """Seconds from the first step to the first block."""
        return 2 * self.skip * self.step_s

    @property
    def alone_s(self) -> float:
        """Seconds of a block that is a process of its own."""
        return max(_ALONE_S, self.block_s)

    @property
    def turns_s(self) -> float:
        """Seconds of a pair of blocks that take turns, in one process or two."""
        return 2 * (max(self.turn_s, self.block_s) + self.skip * self.step_s)

    def start_of_two_s(self, num_pairs: int) -> float:
        """Return the seconds that two processes take to start and to finish `num_pairs` of blocks in turns."""
        return _TWO_AT_ONCE * self.startup_s + self.steady_s + num_pairs * self.turns_s

    @property
    def apart_s(self) -> float:
        """Seconds of a pair of processes, one after the other."""
        return 2 * (self.startup_s + self.steady_s + self.alone_s + _LEAVING_S)
