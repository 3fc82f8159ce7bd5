"""Timing inside the training's process: blocks of steps with and without an arm's fixes, alternating.

Which of the two comes first in a pair, and how long its blocks are, is drawn at random (`analysis.blocks`), so that
neither a drift of the machine nor periodic other load favors one of them. After each switch some steps are left out.
The number of looks at the pairs is fixed in advance, and `analysis.judge` corrects for it. Results are written pair by
pair.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict

from flatout.analysis.blocks import candidate_first, stretch
from flatout.analysis.judge import compare
from flatout.analysis.statistics import block_mean
from flatout.fixes.core.site import Site
from flatout.schema.order import TimingOrder
from flatout.schema.run import Step
from flatout.schema.trial import Pair

__all__ = ["Alternation", "describe", "turn"]

_WARMUP_STEPS, _WARMUP_S = 6, 0.5  # of the process: what is slow once
_ARM_WARMUP_S = 120.0  # longest that an arm may take to settle (compilation)
_FEWEST, _MOST = 4, 4000  # steps in a block; 2 when steps take longer than a second
_SETTLED = 1.5  # an arm has settled when its last three steps lie within this factor of each other

Write = Callable[[str, Mapping[str, object]], None]


class TrainingTime:
    """How long a training has been timed: its steps alone, and with what lay between them (validation)."""

    def __init__(self) -> None:
        """It has not begun."""
        self.began_ns = 0
        self.steps_s = self.elapsed_s = 0.0


class WarmUp:
    """The first steps of the process, or after an arm is switched on."""

    def __init__(self) -> None:
        """There is none yet."""
        self.under_way = True
        self.walls_ms: list[float] = []

    def settled(self, timing: TimingOrder, *, of_process: bool) -> bool:
        """Return whether the next steps may be timed."""
        spent_s, last = sum(self.walls_ms) / 1e3, self.walls_ms[-3:]
        if of_process:
            return len(self.walls_ms) >= _WARMUP_STEPS and spent_s >= _WARMUP_S
        fewest = max(4, timing.skip if timing.ceilings else 0)  # until workers have followed the switch
        steady = len(self.walls_ms) >= fewest and max(last) < _SETTLED * min(last)
        return steady or spent_s > min(_ARM_WARMUP_S, timing.max_s / 2) or len(self.walls_ms) > 50

    def block_steps(self, block_s: float) -> int:
        """Return how many steps a block of so many seconds has."""
        typical = sorted(self.walls_ms)[len(self.walls_ms) // 2]
        fewest = _FEWEST if typical < 1000 else 2
        return max(fewest, min(_MOST, math.ceil(block_s * 1e3 / max(typical, 1e-3))))

    def took_s(self, usual_ms: float) -> float:
        """Return how much longer than usual it took."""
        return max(0.0, sum(self.walls_ms) - usual_ms * len(self.walls_ms)) / 1e3


class Alternation:
    """Arm after arm against the base, in alternating blocks."""

    def __init__(self, timing: TimingOrder, base: Sequence[Site], arms: Sequence[Sequence[Site]], write: Write) -> None:
        """Take the fixes of the base, switched on, and those of each arm, switched off."""
        self._timing = timing
        self._arms = list(arms)
        self._write = write
        self._arm = -1
        self._on = False
        self._time = TrainingTime()
        self._warm = WarmUp()
        self._num_steps = _FEWEST
        self._skip = 0
        self._walls_ms: list[float] = []
        self._half: float | None = None
        self._pairs: list[Pair] = []

    @property
    def arm(self) -> int:
        """The arm under way; as many as there are arms when every one is decided."""
        return self._arm

    @property
    def on(self) -> bool:
        """Whether that arm is switched on."""
        return self._on

    def step(self, step: Step) -> bool:
        """Take one finished step, switch between two blocks; return True when every arm is decided."""
        ms = step.wall_ns / 1e6
        time = self._time
        time.began_ns = time.began_ns or step.start_ns
        time.steps_s += ms / 1e3
        time.elapsed_s = max(time.steps_s, (step.start_ns + step.wall_ns - time.began_ns) / 1e9)
        if self._warm.under_way:
            self._warm.walls_ms.append(ms)
            if self._warm.settled(self._timing, of_process=self._arm < 0):
                self._begin_blocks()
            return self._arm >= len(self._arms)
        if self._skip:
            self._skip -= 1
            return False
        self._walls_ms.append(ms)
        if len(self._walls_ms) >= self._block_size():
            self._end_block()
        return self._arm >= len(self._arms)

    def _begin_blocks(self) -> None:
        self._warm.under_way = False
        if self._arm < 0:
            self._num_steps = self._warm.block_steps(self._timing.block_s)
            self._next_arm()
            return
        if self._nothing_done():
            return
        self._switch(self._first_on())

    def _nothing_done(self) -> bool:
        """Write that the arm under way cannot act, and go on; tell whether that was so."""
        sites = self._arms[self._arm]
        failed = next((site.failure for site in sites if site.failure), "")
        if not failed and (self._timing.without or any(site.hits for site in sites)):
            return False
        self._write("arm", {"arm": self._arm, "decision": "not applied", "reason": failed, "sites": describe(sites)})
        self._next_arm()
        return True

    def _end_block(self) -> None:
        mean, self._walls_ms = block_mean(self._walls_ms), []
        if self._half is None:
            self._half = mean
            self._switch(not self._on)
            return
        pair = Pair(self._half, mean) if self._on else Pair(mean, self._half)
        self._half = None
        self._pairs.append(pair)
        self._write("pair", {"arm": self._arm, "baseline_ms": pair.baseline_ms, "candidate_ms": pair.candidate_ms})
        if not self._decided():
            self._switch(self._first_on())

    def _decided(self) -> bool:
        sites = self._arms[self._arm]
        failed = next((site.failure for site in sites if site.failure), "")
        late = self._time.elapsed_s > self._until_s()
        comparison = compare(self._pairs, alpha=self._timing.alpha, looks=self._timing.looks)
        decision = "failed" if failed else comparison.decision
        if decision == "" and not late and len(self._pairs) < max(self._timing.looks):
            return False
        warmup_s = self._warm.took_s(self._pairs[-1].candidate_ms if self._pairs else 0.0)
        body = {"arm": self._arm, "decision": decision or "undecided", "reason": failed}
        self._write("arm", {**body, "warmup_s": warmup_s, "sites": describe(sites)})
        if not self._timing.ceilings and (late or (decision == "faster" and not self._timing.without)):
            self._turn(False)
            self._arm = len(self._arms)  # what follows is measured on top of it, if it leaves results equal
        else:
            self._next_arm()
        return True

    def _until_s(self) -> float:
        """Return when the arm under way has had its time: of ceilings, each has its share and what others left."""
        share = (self._arm + 1) / len(self._arms) if self._timing.ceilings else 1.0
        return self._timing.max_s * share

    def _next_arm(self) -> None:
        self._turn(False)
        self._arm += 1
        self._pairs, self._half, self._walls_ms = [], None, []
        if self._arm < len(self._arms):
            self._write("begin", {"arm": self._arm})
            self._turn(True)
            self._pairs = list(self._timing.prior[self._arm]) if self._timing.prior else []
            self._warm = WarmUp()

    def _first_on(self) -> bool:
        return candidate_first(len(self._pairs), self._timing.seed + self._arm)

    def _block_size(self) -> int:
        return max(_FEWEST // 2, round(self._num_steps * stretch(len(self._pairs), self._timing.seed + self._arm)))

    def _switch(self, on: bool) -> None:
        if on != self._on:
            self._skip = max(self._timing.skip, self._num_steps // 8) + (0 if on else self._timing.drain)
            self._turn(on)

    def _turn(self, on: bool) -> None:
        """Switch the arm's fixes; with `without`, the arm switches fixes of the base off."""
        if not 0 <= self._arm < len(self._arms):
            self._on = False
            return
        turn(self._arms[self._arm], on, without=self._timing.without)
        self._on = on


def turn(sites: Iterable[Site], on: bool, *, without: bool) -> None:
    """Switch an arm; with `without` its fixes are those of the base that are switched off in it."""
    for site in sites:
        (site.enable if on != without else site.disable)()


def describe(sites: Sequence[Site]) -> list[dict[str, object]]:
    """Return what each fix did, as plain values."""
    return [
        {
            "fix": site.selection.label,
            "hits": dict(site.hits),
            "failure": site.failure,
            "stood_back": site.stood_back,
            "enabled": site.enabled,
            "loaders": [asdict(each) for each in site.loaders()],
        }
        for site in sites
    ]
