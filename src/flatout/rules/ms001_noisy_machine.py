"""Something else was using the machine, or the steps differ so much that their mean says little.

## What it measures

The CPU time, in cores, of all processes that do not belong to the training, while steps ran (from 0.25 core on), and
how far steps lie from their median: half of them by a tenth or more, of at least 20 steps, where that leaves the mean
step uncertain by more than 8% (twice the standard error of the means of eight stretches). Of Linux also the share of
the time in which the training thread was ready to run and had no core.

## Why it matters

On 2 cores, one core kept busy by another job changed loading rates by up to seven times. At a spread of 8% a gain of 5%
is found only 40% of the time, even with 32 pairs of measurements.

What does not depend on the speed of the machine stands: which lines run, how often, and the shares of what computes, as
all of that waits for cores alike. Those are reported all the same, and each finding says that it was measured on a busy
machine. Waits for storage or a network last as long as ever, so their share of the longer step is too small.

## What to do

Stop other programs, or measure when the machine is idle. Pin the training to cores of its own (`taskset`). Record
more steps. Do not compare two such recordings.

## When it is wrong

A long cycle, such as a curriculum or a step that does much more every N steps, moves the mean without any disturbance.
"""

import math
import statistics
from collections.abc import Sequence

from flatout.analysis.statistics import NORMAL_MAD
from flatout.rules.core.example import example, steps_of
from flatout.rules.core.rule import Rule
from flatout.rules.facts.machine_facts import (
    busy_in_words,
    foreign_cores,
    is_disturbed,
    waited_for_cores,
    while_steps_ran,
)
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Run, Utilization
from flatout.units import format_share

MAX_SPREAD = 0.15
MAX_UNCERTAINTY = 0.08
STRETCHES = 8
MIN_STEPS = 20


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """MS001: other load, or a spread that leaves little to conclude."""
    foreign, busy = foreign_cores(run), busy_in_words(run)
    facts = [busy] if busy else []
    unsure = _uncertainty(breakdown.step_ms)
    if breakdown.spread > MAX_SPREAD and breakdown.measured >= MIN_STEPS and unsure > MAX_UNCERTAINTY:
        half = breakdown.spread / NORMAL_MAD
        facts.append(
            f"half of the steps lie more than {format_share(half)} off their median (n={breakdown.measured}), so "
            f"that the mean is known to {format_share(unsure)} only"
        )
    if not facts:
        return None
    text = ", and ".join(facts)
    return Finding(
        code="MS001",
        name="noisy-machine",
        phase=Phase.OTHER,
        share=0.0,
        max_speedup=1.0,
        message=f"{text[0].upper()}{text[1:]}: take the figures as rough. {_advice(run, foreign)}",
        evidence=(
            Evidence("foreign CPU", foreign, "cores"),
            Evidence("training thread without a core", waited_for_cores(run), "share"),
            Evidence("spread of the steps", breakdown.spread, ""),
        ),
    )


def _uncertainty(step_ms: Sequence[float]) -> float:
    """Return how far the mean step may be off, as a share: steps that differ for themselves average out."""
    size = len(step_ms) // STRETCHES
    if not size:
        return math.inf
    means = [statistics.fmean(step_ms[at : at + size]) for at in range(0, STRETCHES * size, size)]
    return 2 * statistics.stdev(means) / math.sqrt(STRETCHES) / statistics.fmean(means)


def _advice(run: Run, foreign: float) -> str:
    if is_disturbed(run):
        return (
            "Lines, counts and the shares of what computes stand; waits for storage or a network look too short. "
            "Measure again on an idle machine."
        )
    others = f"Other programs here used {foreign:.2f} cores: look" if while_steps_ran(run) else "Look"
    return f"{others} for batches of different length, work in every Nth step, or a host that others share."


_FOREIGN = tuple(Utilization(at_s=0.5 * i, main_cpu=1.0, foreign_cpu=0.6) for i in range(12))
_QUIET = tuple(Utilization(at_s=0.5 * i, main_cpu=1.0, foreign_cpu=0.24) for i in range(12))
_UNEVEN = steps_of([{Phase.FORWARD: (40, 50, 70)[i // 7 % 3]} for i in range(60)])
_MIXED = steps_of([{Phase.FORWARD: (40, 50, 70)[i % 3]} for i in range(60)])
_EVEN = steps_of([{Phase.FORWARD: (48, 50, 54)[i % 3]} for i in range(60)])

RULE = Rule(
    code="MS001",
    name="noisy-machine",
    check=check,
    fires_on=(example(step_ms=100, forward=50, utilization=_FOREIGN), example(steps=_UNEVEN)),
    quiet_on=(example(step_ms=100, forward=50, utilization=_QUIET), example(steps=_EVEN), example(steps=_MIXED)),
    no_cure="It is about the machine, not the script: measure again when nothing else runs there.",
)
