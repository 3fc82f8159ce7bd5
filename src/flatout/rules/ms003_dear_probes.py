"""flatout's own probes take a noticeable part of each step.

## What it measures

The cost of the light probes in a step, timed in a tight loop at the end of the recording, compared with the median
step. In a training, wrappers and hooks come on top, and the loop's memory pushes the probes' out of the caches, so four
times as much is assumed. It fires when that is 5% of the step.

## Why it matters

The account is of the step with its probes. With 20 us of probes, a step of 0.3 ms is 7% longer than without them, most
of that in host time. Measured on 2 cores of an AMD EPYC (torch 2.13): a linear model on 10 numbers took 65 us a step,
and 78 us under the probes (medians of n=3 runs each, 30 epochs of 512 steps), 13.6 us where the tight loop shows
3.2 us.

## What to do

Use the phases as they are and the whole as an upper bound. `flatout tune` compares the script with itself under the
same probes, so its choice is not affected.

## When it is wrong

How much more than in the tight loop they cost is not measured in the script itself.
"""

from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Run
from flatout.units import format_ms, format_share

MIN_SHARE = 0.05
IN_A_TRAINING = 4.0  # times what a tight loop shows; measured: 4.3


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """MS003: a twentieth of the median step is what the probes cost."""
    probe_ms = IN_A_TRAINING * run.probe_us / 1000
    if breakdown.median_ms <= 0 or probe_ms < MIN_SHARE * breakdown.median_ms:
        return None
    share = probe_ms / breakdown.median_ms
    return Finding(
        code="MS003",
        name="dear-probes",
        phase=Phase.OTHER,
        share=0.0,
        max_speedup=1.0,
        message=f"The probes take about {format_ms(probe_ms)} of a step of {format_ms(breakdown.median_ms)} "
        f"({format_share(share)}, n={breakdown.measured}): take the step's length as an upper bound.",
        evidence=(
            Evidence("probes in a tight loop", run.probe_us, "us"),
            Evidence("median step", breakdown.median_ms, "ms"),
        ),
    )


RULE = Rule(
    code="MS003",
    name="dear-probes",
    check=check,
    fires_on=(
        example(step_ms=0.1, forward=0.05, probe_us=5.5),
        example(step_ms=0.3, forward=0.1, probe_us=5.0),
    ),
    quiet_on=(
        example(step_ms=0.6, forward=0.1, probe_us=5.0),
        example(step_ms=10, forward=5, probe_us=20.0),
    ),
    no_cure="It is about the measurement, not the script: nothing of it remains in a training.",
)
