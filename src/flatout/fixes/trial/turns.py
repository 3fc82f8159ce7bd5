"""Timing by processes: each process is one block, or two processes side by side take turns, block by block.

What cannot be switched inside a process is compared between two. Side by side they start once, and their blocks
alternate as they would inside one process: the process that has no turn stands still at the end of a step. Where two
at once do not fit, processes follow each other and each is one block.
"""

import contextlib
import math
import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flatout.analysis.blocks import candidate_first, stretch
from flatout.analysis.statistics import block_mean
from flatout.fixes.core.site import Site
from flatout.fixes.trial.alternation import describe
from flatout.schema.order import TimingOrder
from flatout.schema.run import Step

__all__ = ["Turns", "WholeProcess", "owner"]

_WARMUP_STEPS, _WARMUP_S, _MOST_WARMUP_S = 6, 0.5, 60.0  # of the process: what is slow once
_FEWEST = 4  # steps in a block
_SETTLED = 1.5  # settled: the last three steps lie within this factor of each other
_OVER = "over"
_PARTNER_S = 300.0  # longest that one process waits for the other
_LOOK_S, _LOOK_AGAIN_S = 0.001, 0.1  # between two looks at whose turn it is: without a bell, and with one

Write = Callable[[str, Mapping[str, object]], None]


def stay_on(core: int) -> None:
    """Keep the calling thread on `core`, where the system lets it; other threads of the process stay where they are."""
    with contextlib.suppress(AttributeError, OSError):  # macOS has no such call
        if core in os.sched_getaffinity(0):
            os.sched_setaffinity(0, {core})


def owner(number: int, seed: int) -> int:
    """Return whose block it is at position `number`, 0 or 1: of every two blocks one is each's, in drawn order."""
    return int(candidate_first(number // 2, seed)) ^ (number % 2)


def _worth(sites: Sequence[Site]) -> float:
    """Return how many steps of the untouched script one step is worth: it may hold more samples."""
    return math.prod(site.step_worth for site in sites)


class _Warmup:
    """Takes the first steps of a process until they have settled."""

    def __init__(self) -> None:
        self.began_ns = 0
        self.walls_ms: list[float] = []

    def over(self, step: Step) -> bool:
        """Take one step; return whether it was the last one to leave out."""
        self.began_ns = self.began_ns or step.start_ns
        self.walls_ms.append(step.wall_ns / 1e6)
        spent_s, last = sum(self.walls_ms) / 1e3, sorted(self.walls_ms[-6:])
        enough = len(self.walls_ms) >= _WARMUP_STEPS and spent_s >= _WARMUP_S
        return enough and (last[-2] < _SETTLED * last[1] or len(self.walls_ms) > 40 or spent_s > _MOST_WARMUP_S)

    def seconds_lost(self, usual_ms: float) -> float:
        """Return what the first steps took beyond `usual_ms` each, in seconds."""
        return max(0.0, sum(self.walls_ms) - usual_ms * len(self.walls_ms)) / 1e3


class _Block:
    """The steps of one block, and their mean: of the steps alone, or with all that lay between them."""

    def __init__(self, timing: TimingOrder) -> None:
        self._timing = timing
        self._begin_ns = self._end_ns = 0
        self.epoch = 0  # of its last step
        self.walls_ms: list[float] = []
        self._phases_ns: list[int] = []

    def take(self, step: Step) -> None:
        if not self.walls_ms:
            self._begin_ns = self._end_ns or step.start_ns
            self._phases_ns = [0] * len(step.phases_ns)
        self.walls_ms.append(step.wall_ns / 1e6)
        self.epoch = step.epoch
        self._phases_ns = [total + ns for total, ns in zip(self._phases_ns, step.phases_ns, strict=True)]
        self.leave_out(step)

    def leave_out(self, step: Step) -> None:
        """Pass over a step: the next block begins at its end."""
        self._end_ns = step.start_ns + step.wall_ns

    def size(self, typical_ms: float) -> int:
        """Return how many steps a block has, whole epochs where it is to hold what lies between them."""
        fewest = _FEWEST if typical_ms < 1000 else 2
        number = max(fewest, math.ceil(self._timing.block_s * 1e3 / max(typical_ms, 1e-3)))
        epoch = self._timing.epoch_steps
        return epoch * math.ceil(number / epoch) if epoch else number

    def phases_ms(self) -> list[float]:
        """Return the mean of each phase, in the order of `STEP_PHASES`; stalls are in them."""
        return [total / 1e6 / len(self.walls_ms) for total in self._phases_ns]

    def mean_ms(self) -> float:
        if self._timing.epoch_steps:
            return (self._end_ns - self._begin_ns) / 1e6 / len(self.walls_ms)
        return block_mean(self.walls_ms)


class WholeProcess:
    """The process as one block: leave the first steps out, then one mean."""

    def __init__(self, timing: TimingOrder, sites: Sequence[Site], write: Write) -> None:
        """Take what the process runs under."""
        self._timing = timing
        self._sites = sites
        self._write = write
        self._warmup: _Warmup | None = _Warmup()
        self._lost: _Warmup = self._warmup
        self._num_steps = _FEWEST
        self._block = _Block(timing)

    def step(self, step: Step) -> bool:
        """Take one finished step; return True when there are enough."""
        if self._warmup is not None:
            self._block.leave_out(step)
            if self._warmup.over(step):
                self._num_steps = self._block.size(step.wall_ns / 1e6)
                self._warmup = None
            return False
        self._block.take(step)
        return len(self._block.walls_ms) >= self._num_steps

    def finish(self) -> None:
        """Write the block as far as it came."""
        walls = self._block.walls_ms
        if walls or self._lost.walls_ms[2:]:
            mean = self._block.mean_ms() if walls else block_mean(self._lost.walls_ms[2:])
            body = {"ms": mean / _worth(self._sites), "steps": len(walls), "warmup_s": self._lost.seconds_lost(mean)}
            self._write("block", {**body, "side": self._timing.side, "sites": describe(self._sites)})


class _Bell:
    """Wakes the process that stands still, through a named pipe: looking often takes time of the core both share."""

    def __init__(self, folder: Path, side: int) -> None:
        self._own, self._other = (folder / f"bell-{each}" for each in (side, 1 - side))
        self._pipe: int | None = None

    def hang(self) -> None:
        """Make the pipe that the other process rings; without one (Windows) `wait` is short."""
        with contextlib.suppress(AttributeError, OSError):
            os.mkfifo(self._own)
            self._pipe = os.open(self._own, os.O_RDWR | os.O_NONBLOCK)  # its own writer, so that it never ends

    def wait(self) -> None:
        """Stand still until the other process rings, or for so long that it may have ended without."""
        if self._pipe is None:
            time.sleep(_LOOK_S)
            return
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            if selector.select(_LOOK_AGAIN_S):
                os.read(self._pipe, 64)

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # the other one has no pipe, or is gone
            pipe = os.open(self._other, os.O_WRONLY | os.O_NONBLOCK)
            with open(pipe, "wb", buffering=0) as opened:
                opened.write(b"\0")


class Turns:
    """One of two processes side by side: blocks when it is its turn, standing still between them."""

    def __init__(self, timing: TimingOrder, sites: Sequence[Site], write: Write) -> None:
        """Take the folder where turns are told, and which of the two this process is."""
        self._timing = timing
        self._sites = sites
        self._write = write
        self._folder = Path(timing.turns)
        self._bell = _Bell(self._folder, timing.side)
        self._warmup: _Warmup | None = _Warmup()
        self._lost: _Warmup = self._warmup
        self._block = _Block(timing)
        self._num_steps = _FEWEST
        self._number = -1  # of the block under way, counted over both processes
        self._skip = 0

    def step(self, step: Step) -> bool:
        """Take one finished step; stand still while it is the other's turn; return True after the last block."""
        if self._warmup is not None:
            if not self._warmup.over(step):
                return False
            self._num_steps = self._block.size(sorted(self._warmup.walls_ms)[len(self._warmup.walls_ms) // 2])
            self._warmup = None
            stay_on(self._timing.core)
            self._bell.hang()
            (self._folder / f"ready-{self._timing.side}").touch()
            self._bell.ring()
            return self._wait(-1)
        if self._skip:
            self._skip -= 1
            self._block.leave_out(step)
            return False
        self._block.take(step)
        return len(self._block.walls_ms) >= self._block_size() and self._end_block()

    def finish(self) -> None:
        """Write what the fixes did; the other process need not wait for a training that is over."""
        (self._folder / _OVER).touch()
        self._bell.ring()
        usual = block_mean(self._block.walls_ms or self._lost.walls_ms or [0.0])
        warmup = {"began_ns": self._lost.began_ns, "warmup_s": self._lost.seconds_lost(usual)}
        self._write("side", {"side": self._timing.side, **warmup, "sites": describe(self._sites)})

    def _block_size(self) -> int:
        if self._timing.epoch_steps:
            return self._num_steps
        return max(_FEWEST // 2, round(self._num_steps * stretch(self._number // 2, self._timing.seed)))

    def _end_block(self) -> bool:
        mean, number = self._block.mean_ms(), len(self._block.walls_ms)
        body = {"number": self._number, "side": self._timing.side, "ms": mean / _worth(self._sites), "steps": number}
        body |= {"epoch": self._block.epoch}
        self._write("block", {**body, "phases_ms": self._block.phases_ms(), "sites": describe(self._sites)})
        self._num_steps = self._block.size(mean)  # steps of the warm-up may have been far from what they are by now
        if self._number + 1 < 2 * max(self._timing.looks):
            self._block.walls_ms = []
        self._pass_on(self._number + 1)
        return self._wait(self._number)

    def _pass_on(self, number: int) -> None:
        partial = self._folder / f"turn-{self._timing.side}"
        partial.write_text(str(number), encoding="ascii")
        os.replace(partial, self._folder / "turn")
        self._bell.ring()

    def _wait(self, done: int) -> bool:
        """Stand still until the next block of this process; return True when there is none, or nobody answers."""
        start = time.monotonic()
        while time.monotonic() - start < _PARTNER_S:
            number = self._turn()
            if number >= 2 * max(self._timing.looks):
                return True
            if number > done and owner(number, self._timing.seed) == self._timing.side:
                resumed = owner(number - 1, self._timing.seed) != self._timing.side or number == 0
                self._number, self._skip = number, self._timing.skip + self._num_steps // 8 if resumed else 0
                return False
            self._bell.wait()
        return True

    def _turn(self) -> int:
        """Return the number of the block that is due, -1 before both processes are warm, a large one at the end."""
        if (self._folder / _OVER).exists():
            return 2 * max(self._timing.looks)
        try:
            return int((self._folder / "turn").read_text(encoding="ascii"))
        except (OSError, ValueError):
            both = all((self._folder / f"ready-{side}").exists() for side in (0, 1))
            return 0 if both else -1
