"""What autograd's anomaly detection costs: steps with it and without it in turn, in the deep run."""

import statistics
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from flatout.probe.core.seams import Hits, Seams
from flatout.probe.core.spans import BACKWARD, FORWARD
from flatout.probe.core.user_places import caller
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Frame, Step

__all__ = ["AnomalyTrial"]

_ANOMALY_BLOCK = 5  # steps with anomaly detection on, then as many with it off


def _torch_asks(frame: FrameType) -> bool:
    """Return whether a call comes from torch itself: its compiler traces with anomaly detection on."""
    return str(frame.f_globals.get("__name__", "")).startswith("torch.")


class AnomalyTrial:
    """Switches anomaly detection off for every other block of steps and compares forward + backward."""

    def __init__(self) -> None:
        """Measure nothing yet."""
        self._arms: tuple[list[int], list[int]] = ([], [])
        self._place: Frame | None = None
        self._enabled_by_script = False
        self._steps = 0
        self._off = False
        self.ours: Callable[[], bool] = lambda: False  # whether a probe has it on, for the lines that nodes are made at

    @property
    def priced(self) -> bool:
        """Return whether the script has switched anomaly detection on, so that steps of both kinds are taken."""
        return self._enabled_by_script

    def install(self, seams: Seams) -> None:
        """Note where it is switched on."""
        for name in ("set_detect_anomaly", "detect_anomaly"):
            seams.wrap(f"torch.autograd.anomaly_mode:{name}.__init__", self._noted)
        seams.wrap("torch.autograd.anomaly_mode:detect_anomaly.__enter__", self._entered)

    def _entered(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def enter(context: Any) -> Any:
            result = original(context)
            if not _torch_asks(sys._getframe(1)):
                self.apply()
            return result

        return enter

    def _noted(self, original: Callable[..., Any], hits: Hits) -> Callable[..., Any]:
        def init(*args: Any, **kwargs: Any) -> None:
            hits.count += 1
            if not _torch_asks(sys._getframe(1)):
                self._place = self._place or caller(2)
            original(*args, **kwargs)

        return init

    def apply(self) -> None:
        """Called as forward and backward begin: the script may have switched it on again inside the step."""
        if torch.is_anomaly_enabled() and not self.ours():
            self._enabled_by_script = True
            if self._off:
                torch.set_anomaly_enabled(False, torch.is_anomaly_check_nan_enabled())

    def step(self, step: Step, *, with_host: bool) -> None:
        """Take one finished step, and switch after every few of them."""
        if self.ours() or not (self._enabled_by_script or torch.is_anomaly_enabled()):
            return
        spent = step.phases_ns[FORWARD] + step.phases_ns[BACKWARD]
        if with_host:  # no module is called: the forward pass is the loop's own code
            spent += step.phases_ns[STEP_PHASES.index(Phase.HOST)]
        # a step without a loader is told while the next one runs: the first two of a block may be of either arm
        if self._steps % _ANOMALY_BLOCK >= 2:
            self._arms[self._off].append(spent)
        self._steps += 1
        self._off = self._steps // _ANOMALY_BLOCK % 2 == 1
        torch.set_anomaly_enabled(not self._off, torch.is_anomaly_check_nan_enabled())

    def end(self) -> None:
        """Leave it as the script wants it."""
        if self._enabled_by_script:
            torch.set_anomaly_enabled(True, torch.is_anomaly_check_nan_enabled())

    def facts(self) -> tuple[float, int, Frame | None]:
        """Return the share of forward + backward it costs, steps in the smaller arm, and where it was switched on."""
        on, off = self._arms
        steps = min(len(on), len(off))
        if steps < 3:
            return 0.0, 0, None
        return max(0.0, 1 - statistics.median(off) / statistics.median(on)), steps, self._place
