"""Too few steps were measured to trust the figures.

## What it measures

The number of steady steps, without warm-up. It fires below 20; below 5, only the findings that a few steps can show are
reported (kept graphs, validation with gradients, repeated recompilation, full shared memory).

## Why it matters

The mean of a dozen steps moves by several percent with a single stall, and thresholds of 5% then mean nothing. The line
sampler of the deep run names no function that it saw fewer than 8 times.

In recordings of n=11 scripts (`benchmarks/planted`, 286 to 4279 steps each, 2 cores of an AMD EPYC, torch 2.13) the
mean of 5 consecutive steps was off that of all steps by 4.7%, and in one case of twenty by more than 15%; that of 10
steps by 3.8% and 12%, of 20 steps 2.9% and 8.9%, of 50 steps 2.0% and 7.0% (medians over the scripts).

## What to do

Let flatout record more steps (`--steps`), or let the script run longer before it ends: a larger subset, one more
epoch.

## When it is wrong

Steps of many seconds each are steady after a few: then look at their spread.
"""

from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Run

MIN_STEPS = 20


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """MS002: fewer than 20 steps were measured."""
    if breakdown.measured >= MIN_STEPS:
        return None
    return Finding(
        code="MS002",
        name="too-few-steps",
        phase=Phase.OTHER,
        share=0.0,
        max_speedup=1.0,
        message=f"Too few steady steps were measured (n={breakdown.measured}, after {breakdown.warmup} of warm-up): "
        f"shares may be off by several percent. Record at least {MIN_STEPS}.",
        evidence=(
            Evidence("steps measured", breakdown.measured, ""),
            Evidence("steps of warm-up", breakdown.warmup, ""),
        ),
    )


RULE = Rule(
    code="MS002",
    name="too-few-steps",
    check=check,
    fires_on=(example(step_ms=100, n=19, forward=50), example(step_ms=100, n=1, forward=50)),
    quiet_on=(example(step_ms=100, n=20, forward=50), example(step_ms=100, n=60, forward=50)),
    no_cure="It is about the measurement, not the script: measure more steps.",
)
