"""The line sampler of a deep run: which chain of user lines the watched thread is in, every millisecond or so.

A sample counts for the time since the one before it, so a library call that holds the interpreter lock weighs what it
lasts. The time between samples is drawn by lot: a fixed one falls into step with a loop that keeps time itself, and
sees the same lines again and again.

The main thread is watched by a clock in C (ticks.c), which waits for no lock. Another thread, or any where that was not
compiled, is watched by a thread of Python: this gets its turn where the other lets go of the interpreter, in the
operations of torch, and under-counts plain Python, though the switch interval is shortened meanwhile (a deep run is
never timed). `benchmarks/lines.py` shows both.
"""

import array
import atexit
import contextlib
import ctypes
import functools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, cast

from flatout.probe.core.instructions import before, has_just_begun
from flatout.probe.core.seams import Seams
from flatout.probe.core.user_places import leaf_module, user_stack
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Frame, LineCost

try:
    from flatout.probe import _ticks
except ImportError:  # no compiler when flatout was installed
    _ticks = None  # type: ignore[assignment]

__all__ = ["Doing", "LineSampler", "Where", "input_stage", "where"]

Where = tuple[str, str]
"""Phase and part of host time at the moment of a sample."""

_Key = tuple[str, str, str, tuple[tuple[str, int, str], ...], str, str, bool]

_PERIOD_S, _SPREAD = 0.001, 0.9  # seconds between samples on average, and how far one may be off, as a share of them
_PR_SET_TIMERSLACK = 29  # of linux/prctl.h; for the calling thread, in nanoseconds
_SWITCH_S = 0.00001  # waiting longer would favour lines that release the lock over lines that hold it
_LONGEST_S = 2.0  # a gap above this is a suspended process, not a long call
_OWN_WORK = {  # no cost of the script; in "collector" a sample lands that waited for a collection: it is clocked there;
    # in "fetching" one that was due in the code of the dataset, and came when that had let go of the interpreter
    f"flatout.probe.{name}"
    for name in (
        "recorder",
        "deep",
        "core.step_tracker",
        "core.part_file",
        "core.event_log",
        "core.step_pattern",
        "core.spans",
        "forward.call_contents",
        "forward.calls_again",
        "forward.forward_operations",
        "forward.frozen_calls",
        "forward.line_counts",
        "forward.pairwise_differences",
        "forward.product_chains",
        "forward.slow_forms",
        "forward.unchanging_calls",
        "forward.untrained_calls",
        "forward.zero_products",
        "backward.backward_passes",
        "backward.embedding_tables",
        "backward.forward_lines",
        "backward.leaf_use",
        "backward.node_sums",
        "backward.python_entries",
        "backward.recorded_pass",
        "loader.fetching",
        "model.convolutions",
        "model.loop_invariant",
        "model.unused_gradients",
        "system.garbage_collector",
        "system.setting_trial",
        "system.gradient_exchange",
    )
}
_SET_WAKEUP_FD = signal.set_wakeup_fd
_PARTS = {7: "lead", 8: "loss", 9: "tail"}


def _signal() -> int:
    """Return the number of a signal that calls `_ticks.asked`, or 0 where a pending call does that.

    SIGURG, as in Go's runtime: next to nobody uses it, and where a framework puts the handlers of all signals back that
    it found at its start, as Lightning does, this one is ignored from then on; another would end the process.

    Raises:
        RuntimeError: The script handles it, or each signal is told to an event loop besides.

    """
    if sys.version_info >= (3, 13):
        return 0
    told = signal.set_wakeup_fd(-1)
    if told != -1:
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        raise RuntimeError("signals are told to an event loop")
    if signal.getsignal(signal.SIGURG) not in (signal.SIG_DFL, _ticks.asked):
        raise RuntimeError("the script handles the signal itself")
    signal.signal(signal.SIGURG, _ticks.asked)
    signal.siginterrupt(signal.SIGURG, False)
    return signal.SIGURG


def _wake_promptly() -> None:
    """Ask Linux to wake this thread when its time is over, not up to 50 us later, as it does by default.

    What holds the interpreter's lock is else seen too late, at the next line that releases it. With this alone, and a
    fixed interval of 3 ms, the share of input made by hand was off by up to 6.0 points of a step, with intervals drawn
    by lot besides by up to 1.9 (n=8), with a mean of 1 ms by up to 1.2 (n=4; `benchmarks/account.py`).
    """
    with contextlib.suppress(AttributeError, OSError):  # no Linux
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


@dataclass(slots=True)
class Doing:
    """What the watched thread is doing right now, as seams say; each value is the same object every time."""

    where: Where = (Phase.OTHER, "")
    stage: str = ""


@functools.cache
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


@dataclass(slots=True)
class _SeenFrame:
    """A frame that a look noted, as far as its chain is read."""

    f_code: CodeType
    f_lasti: int
    f_globals: dict[str, str]
    f_back: "_SeenFrame | None"
    f_lineno: None = None  # found by the offset


class LineSampler:
    """Samples one thread of this process."""

    def __init__(self, process: str, doing: Doing, thread: Callable[[], int] = threading.get_ident) -> None:
        """Take "main" or "worker", what the watched thread is doing, and what gives its identity.

        Of a worker, `where` is not read: it is at input while it is at some stage.
        """
        self._process = process
        self._doing = doing
        self._thread = thread
        self._costs: dict[_Key, list[float]] = {}
        self._stop = threading.Event()
        self._before = sys.getswitchinterval()
        self._ticking = False
        self._seams = Seams()
        self._chains: list[list[Any]] = []
        self._sampling: threading.Thread | None = None
        self._keys: dict[int, _Key | None] = {}

    @property
    def wall_s(self) -> float:
        """Seconds that the samples stand for."""
        return sum(seconds for _, seconds, _ in self._seen())

    @property
    def num_threads(self) -> int:
        """Threads that sample: the clock in C has two."""
        return 2 if self._ticking else 1

    def start(self) -> None:
        """Begin to sample."""
        thread = self._thread()
        if _ticks is not None and thread == threading.main_thread().ident == threading.get_ident():
            with contextlib.suppress(RuntimeError, ValueError):  # already at it here, or no thread or signal to be had
                _ticks.start(self._doing, "where", self._doing, "stage", _PERIOD_S, _SPREAD, _signal())
                self._ticking = True
                self._seams.replace(signal, "set_wakeup_fd", self._told)
                atexit.register(self.stop)
                return
        sys.setswitchinterval(_SWITCH_S)
        self._sampling = threading.Thread(target=self._run, args=(thread,), name="flatout-lines", daemon=True)
        self._sampling.start()

    def stop(self) -> None:
        """Stop sampling and leave the interpreter as it was."""
        self._stop.set()
        if not self._ticking:
            sys.setswitchinterval(self._before)
            if self._sampling not in (None, threading.current_thread()):
                self._sampling.join(_LONGEST_S)  # or the sample it is at would come after what was read
            return
        with contextlib.suppress(IndexError):  # another thread stops it, too
            self._seams.undo()
        _ticks.stop()
        self._chains = _ticks.seen()
        self._ticking = False
        atexit.unregister(self.stop)

    def _told(self, fd: int, /, *, warn_on_full_buffer: bool = True) -> int:
        """Send no more signals where an event loop wants to be told of each; in place of `signal.set_wakeup_fd`."""
        if self._ticking and fd != -1:
            _ticks.hush()
        return _SET_WAKEUP_FD(fd, warn_on_full_buffer=warn_on_full_buffer)

    def costs(self) -> tuple[LineCost, ...]:
        """Return what was seen, the dearest chain first."""
        sums: dict[_Key, list[float]] = {}
        for key, seconds, samples in self._seen():
            cost = sums.setdefault(key, [0.0, 0])
            cost[0] += seconds
            cost[1] += samples
        found = []
        for (phase, part, stage, stack, leaf, function, uses_torch), (seconds, samples) in sums.items():
            found.append(
                LineCost(
                    process=self._process,
                    phase=Phase(phase),
                    part=part,
                    stage=stage,
                    stack=tuple(Frame(*place) for place in stack),
                    leaf=leaf,
                    leaf_function=function,
                    leaf_uses_torch=uses_torch,
                    seconds=seconds,
                    samples=int(samples),
                )
            )
        return tuple(sorted(found, key=lambda cost: -cost.seconds)[:400])

    def _seen(self) -> Iterator[tuple[_Key, float, float]]:
        """Yield seconds and samples of every chain that is not our own work."""
        for key, (seconds, samples) in list(self._costs.items()):
            yield key, seconds, samples
        for entry in _ticks.seen() if self._ticking else self._chains:
            if id(entry) not in self._keys:
                self._keys[id(entry)] = self._key_of(*entry[2:])
            chain = self._keys[id(entry)]
            if chain is not None:
                yield chain, entry[0], entry[1]

    def _key_of(
        self, marks: tuple[Where, str], modules: tuple[str, str], codes: tuple[CodeType, ...], key: bytes
    ) -> _Key | None:
        numbers = array.array("q", key)
        frames = [
            (code, numbers[5 + 2 * place], "".join(modules[place : place + 1])) for place, code in enumerate(codes)
        ]
        if len(frames) > 1 and has_just_begun(*frames[0][:2]):
            code, offset, name = frames[1]
            frames[:2] = [(code, before(code, offset), name)]
        frame = None
        for code, offset, name in reversed(frames):
            frame = _SeenFrame(code, offset, {"__name__": name}, frame)
        return self._key(cast(FrameType, frame), *marks) if frame is not None else None

    def _key(self, frame: FrameType, place: Where, stage: str) -> _Key | None:
        if frame.f_globals.get("__name__") in _OWN_WORK:
            return None
        if self._process == "worker":
            place = (Phase.INPUT, "") if stage else (Phase.OTHER, "")
        stage = (stage or input_stage(frame)) if place[0] == Phase.INPUT else ""
        return (*place, stage, user_stack(frame), *leaf_module(frame))

    def _run(self, thread: int) -> None:
        _wake_promptly()
        draw = random.Random(0).uniform  # a generator of its own: the script's stays as it is
        last = time.perf_counter()
        while not self._stop.wait(_PERIOD_S * draw(1 - _SPREAD, 1 + _SPREAD)):
            moment = time.perf_counter()
            frame = sys._current_frames().get(thread)
            if frame is None:
                continue
            key = self._key(frame, self._doing.where, self._doing.stage)
            del frame
            elapsed, last = min(moment - last, _LONGEST_S), moment
            if key is not None:
                cost = self._costs.setdefault(key, [0.0, 0])
                cost[0] += elapsed
                cost[1] += 1
