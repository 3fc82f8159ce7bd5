"""When a recording has seen enough of a training to be sound, and how long that training is to be."""

import sys
from collections.abc import Set
from types import FrameType

from flatout.probe.core.environment import describe_memory
from flatout.probe.core.planned_length import planned_length
from flatout.probe.core.seams import Seams
from flatout.probe.core.stages import TrainingStages
from flatout.probe.core.step_tracker import StepTracker
from flatout.probe.loader.short_passes import ShortPasses
from flatout.schema.order import Order
from flatout.schema.run import DeviceMemory, Planned, Step

__all__ = ["LOOK_EVERY_NS", "RecordedSpan", "enough"]

LOOK_EVERY_NS = 20_000_000
"""Events are worked out, and whether enough was seen is asked, every 20 ms."""


_SHORT = 8  # batches of a pass after the one that was ended: of a validation
_ENDING_S = 4.0  # for the steps after it to come


def enough(order: Order, num_steps: int, elapsed_s: float, epochs: int, *, before_s: float = 0.0) -> bool:
    """Return whether a recording of `num_steps` over `elapsed_s` seconds is sound enough to stop.

    Short steps need time (drift, gaps between epochs), long steps need number;
    a whole training is recorded to its end. A timed run lasts 5 s, up to 9 s to
    see a second epoch, and longer only until it has 24 steps; a deep run is shorter.
    A deep run goes on until `order.least_steps`, where that is soon. `before_s`: seconds of a training before this one.
    """
    if order.mode == "whole":
        return False
    if before_s + elapsed_s >= order.max_s:
        return True
    if order.steps is not None:
        return num_steps > order.steps
    short, long = (5.0, 9.0) if order.mode == "timed" else (3.5, 6.0)
    wanted = 24 if order.mode == "timed" else 12
    if elapsed_s >= 4 * long:
        return num_steps >= 8
    if num_steps < order.least_steps:
        return False
    return num_steps >= wanted and (elapsed_s >= long or (elapsed_s >= short and epochs >= 3))


class RecordedSpan:
    """Since when steps are recorded, and whether they are enough by now."""

    def __init__(self, order: Order) -> None:
        """Nothing is recorded yet."""
        self._order = order
        self.first_ns = 0
        self.memory_before: DeviceMemory | None = None
        self.planned = Planned()
        self._passes: ShortPasses | None = None
        self._ending_since_s: float | None = None
        self._look_again_ns = 0
        self._before = (0, 0, 0)  # nanoseconds, steps and epochs of trainings that are over
        self._stages = TrainingStages()

    def install(self, seams: Seams, thread: int) -> None:
        """Make it possible to end a pass over a loader early, of a deep run."""
        if self._order.mode == "deep" and self._order.steps is None:
            self._passes = ShortPasses(thread)
            self._passes.install(seams)

    def begin(self, step: Step) -> None:
        """Take the first step, in the training thread."""
        self.first_ns = step.start_ns
        self.memory_before = describe_memory()
        self._plan(sys._getframe(1))

    def stage(self, step: Step, tracker: StepTracker, held: Set[tuple[int, int]]) -> int:
        """Return the first step of a training that has begun, by what the optimizers of this step hold; 0: none has.

        That is a few steps ago. 1: a training goes on that was thought to be over.
        """
        first = self._stages.step(tracker.num_steps, held)
        if first and self.first_ns:
            self._begin_again(step, tracker, first)
        return first

    def _begin_again(self, step: Step, tracker: StepTracker, first: int) -> None:
        over = (step.start_ns - self.first_ns, first - 1, max(0, tracker.passes.epochs - 1))
        self._before = over if first > 1 else (0, 0, 0)
        self._plan(sys._getframe(2))

    def _plan(self, caller: FrameType) -> None:
        if self._order.mode == "timed" and self._order.protect_files:  # what is looked at may show in `locals()`
            self.planned = planned_length(caller)

    def suffices(self, step: Step, tracker: StepTracker) -> bool:
        """Return whether enough was seen with the step that has just ended."""
        end_ns = step.start_ns + step.wall_ns
        if self._order.steps is None and end_ns < self._look_again_ns:
            return False
        self._look_again_ns = end_ns + LOOK_EVERY_NS
        before_ns, steps, begun = self._before
        elapsed_s, epochs = (end_ns - self.first_ns - before_ns) / 1e9, tracker.passes.epochs - begun
        seen = tracker.num_steps - steps
        sound = enough(self._order, seen, elapsed_s, epochs, before_s=before_ns / 1e9)
        return sound and not self._ends_an_epoch(elapsed_s, epochs)

    def _ends_an_epoch(self, elapsed_s: float, epochs: int) -> bool:
        """Return whether to go on until the end of an epoch has been run through, where none was seen by now."""
        if self._ending_since_s is None:
            if epochs != 1 or self._passes is None or not self._passes.end_now(_SHORT):
                return False
            self._ending_since_s = elapsed_s
        return epochs == 1 and elapsed_s - self._ending_since_s < _ENDING_S and elapsed_s < self._order.max_s
