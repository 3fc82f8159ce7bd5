"""The line sampler of a deep run: which chain of user lines the watched thread is in, every millisecond or so.

A sample counts for the time since the one before it, so a library call that holds the interpreter lock weighs what it
lasts. The time between samples is drawn by lot: a fixed one falls into step with a loop that keeps time itself, and
sees the same lines again and again. The switch interval is shortened while sampling (a deep run is never timed): at
Python's default of 5 ms the sampler would mostly get its turn inside calls that release the lock, and under-count plain
Python.
"""

import contextlib
import ctypes
import random
import sys
import threading
import time
from collections.abc import Callable

from flatout.probe.places import leaf_module, user_stack
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Frame, LineCost

__all__ = ["LineSampler", "Where", "input_stage"]

Where = tuple[str, str]
"""Phase and part of host time at the moment of a sample."""

_Key = tuple[str, str, str, tuple[tuple[str, int, str], ...], str, str]

_PERIOD_S, _SPREAD = 0.001, 0.9  # seconds between samples on average, and how far one may be off, as a share of them
_PR_SET_TIMERSLACK = 29  # of linux/prctl.h; for the calling thread, in nanoseconds
_SWITCH_S = 0.00001  # waiting longer would favour lines that release the lock over lines that hold it
_LONGEST_S = 2.0  # a gap above this is a suspended process, not a long call
_OWN_WORK = {  # no cost of the script; in "collector" a sample lands that waited for a collection: it is clocked there;
    # in "fetching" one that was due in the code of the dataset, and came when that had let go of the interpreter
    f"flatout.probe.{name}"
    for name in ("steps", "recorder", "part", "deep", "collector", "prices", "exchange", "convolutions", "fetching")
}
_PARTS = {7: "lead", 8: "loss", 9: "tail"}


def _wake_promptly() -> None:
    """Ask Linux to wake this thread when its time is over, not up to 50 us later, as it does by default.

    What holds the interpreter's lock is else seen too late, at the next line that releases it. With this alone, and a
    fixed interval of 3 ms, the share of input made by hand was off by up to 6.0 points of a step, with intervals drawn
    by lot besides by up to 1.9 (n=8), with a mean of 1 ms by up to 1.2 (n=4; `benchmarks/account.py`).
    """
    with contextlib.suppress(AttributeError, OSError):  # no Linux
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def where(slot: int, between: bool) -> Where:
    """Return phase and host part of a slot of the account; `between` steps, host time is the gap's."""
    if slot == 10:
        return Phase.EPOCH_GAP, ""
    if slot in _PARTS:
        return (Phase.EPOCH_GAP, "") if between else (Phase.HOST, _PARTS[slot])
    return STEP_PHASES[slot], ""


def input_stage(frame: object) -> str:
    """Return what the loader is doing above `frame`: fetching samples, collating, sampling indices, or waiting."""
    while frame is not None:
        code = frame.f_code  # type: ignore[attr-defined]
        file = code.co_filename
        if file.endswith("fetch.py") and "torch" in file and code.co_name == "fetch":
            return "sample"
        if file.endswith("dataloader.py") and "torch" in file:
            if code.co_name == "_next_index":
                return "sampler"
            if code.co_name in ("_try_get_data", "_get_data"):
                return "wait"
        if file.endswith("collate.py") and "torch" in file:
            return "collate"
        frame = frame.f_back  # type: ignore[attr-defined]
    return ""


class LineSampler:
    """Samples one thread of this process from a daemon thread."""

    def __init__(self, process: str, thread: Callable[[], int], locate: Callable[[], Where]) -> None:
        """Take "main" or "worker", the watched thread's identity, and what says phase and part right now."""
        self._process = process
        self._thread = thread
        self._locate = locate
        self._costs: dict[_Key, list[float]] = {}
        self._stop = threading.Event()
        self._before = sys.getswitchinterval()
        self.stage_of: Callable[[], str] = lambda: ""
        self.wall_s = 0.0

    def start(self) -> None:
        """Begin to sample."""
        sys.setswitchinterval(_SWITCH_S)
        threading.Thread(target=self._run, name="flatout-lines", daemon=True).start()

    def stop(self) -> None:
        """Stop sampling and restore the switch interval."""
        self._stop.set()
        sys.setswitchinterval(self._before)

    def costs(self) -> tuple[LineCost, ...]:
        """Return what was seen, the dearest chain first."""
        found = []
        for (phase, part, stage, stack, leaf, function), (seconds, samples) in list(self._costs.items()):
            found.append(
                LineCost(
                    process=self._process,
                    phase=Phase(phase),
                    part=part,
                    stage=stage,
                    stack=tuple(Frame(*place) for place in stack),
                    leaf=leaf,
                    leaf_function=function,
                    seconds=seconds,
                    samples=int(samples),
                )
            )
        return tuple(sorted(found, key=lambda cost: -cost.seconds)[:400])

    def _run(self) -> None:
        _wake_promptly()
        draw = random.Random(0).uniform  # a generator of its own: the script's stays as it is
        last = time.perf_counter()
        while not self._stop.wait(_PERIOD_S * draw(1 - _SPREAD, 1 + _SPREAD)):
            moment = time.perf_counter()
            frame = sys._current_frames().get(self._thread())
            if frame is None:
                continue
            if frame.f_globals.get("__name__") in _OWN_WORK:
                last = moment
                continue
            phase, part = self._locate()
            stage = ""
            if phase == Phase.INPUT:
                stage = self.stage_of() or input_stage(frame)
            key = (phase, part, stage, user_stack(frame), *leaf_module(frame))
            del frame
            elapsed = min(moment - last, _LONGEST_S)
            last = moment
            self.wall_s += elapsed
            cost = self._costs.setdefault(key, [0.0, 0])
            cost[0] += elapsed
            cost[1] += 1
