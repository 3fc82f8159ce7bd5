"""The training's memory grows from step to step and does not level off.

## What it measures

Resident memory of the training's largest process, without mapped files, sampled while steps ran. The first tenth of the
steps, at least five, is left out: optimizer states and buffers are made there. The recording is divided into thirds. It
fires if the last third is above the first by 5%, by 64 MiB and by twice the fluctuation within a third, the middle
third is between them, and memory still grows within the last third. It needs at least twenty steps and 6 s of them;
`--whole` looks for longer.

## Why it matters

A run that grows by 1 MB a step uses 10 GB more after ten thousand steps, and is in the end killed for lack of memory.
Long before, the system takes the memory from the page cache, and the input is read from the disk again.

## What to do

Look for what is kept from step to step: lists of losses or predictions, an unbounded cache in the data set, a figure
that is never closed. `tracemalloc` compares two moments by line.

## When it is wrong

A data set that keeps what it has loaded grows until it has seen everything once: compare with its size. Kept graphs
are reported with their line by ME001, not here. Where a loader worker is larger than the training process, the worker
is measured.
"""

from dataclasses import replace

from flatout.analysis.statistics import median, quantile
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.facts.machine_facts import while_steps_ran
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Retained, Run, Utilization
from flatout.units import format_bytes

MIN_SAMPLES = 12
MIN_STEPS, FIRST_STEPS, FIRST_SHARE = 20, 5, 0.1
# Growth as a multiple of the interquartile range of a third: a straight line grows by four. Memory that is taken and
# given back in each step spread by 3 to 16% in four of ten programs that keep nothing (2026-11-25).
SPREADS = 2.0
MIN_BYTES = 64 * 2**20
MIN_GROWTH = 0.05
STILL = 0.15  # growth within the last third, as a part of that between first and last third: a straight line has 0.5


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """ME002: memory grows over the whole recording and does not stop."""
    explained = run.causes is not None and bool(run.causes.retained)
    if explained or len(run.steps) < MIN_STEPS:
        return None
    left_out = max(FIRST_STEPS, round(FIRST_SHARE * len(run.steps)))
    sizes = [sample.private_bytes for sample in while_steps_ran(replace(run, steps=run.steps[left_out:]))]
    if len(sizes) < MIN_SAMPLES:
        return None
    third = len(sizes) // 3
    thirds = sizes[:third], sizes[third:-third], sizes[-third:]
    first, middle, last = map(median, thirds)
    grown, end = last - first, thirds[-1]
    still = median(end[len(end) // 2 :]) - median(end[: len(end) // 2])
    spread = max(quantile(part, 0.75) - quantile(part, 0.25) for part in thirds)
    if (
        grown < max(MIN_BYTES, MIN_GROWTH * first, SPREADS * spread)
        or not first < middle < last
        or still < STILL * grown
    ):
        return None
    a_step = grown / (2 / 3 * (len(run.steps) - left_out) * run.steps_each)
    return Finding(
        code="ME002",
        name="memory-creep",
        phase=Phase.OTHER,
        share=0.0,
        max_speedup=1.0,
        message=f"Memory grew from {format_bytes(first)} to {format_bytes(last)} while {run.num_steps} steps ran "
        f"(n={len(sizes)}), {format_bytes(a_step * 1000)} for every 1,000 steps. Look for what is kept between steps.",
        evidence=(
            Evidence("first third", first, "bytes"),
            Evidence("last third", last, "bytes"),
            Evidence("growth of a step", a_step, "bytes"),
        ),
        fixes=(),
    )


def _growing(megabytes: float, until: int = 16, ripple: float = 0.0) -> tuple[Utilization, ...]:
    sizes = (int((600 + megabytes * min(i, until) + ripple * (i % 3)) * 2**20) for i in range(16))
    return tuple(Utilization(at_s=0.5 * i, private_bytes=size) for i, size in enumerate(sizes))


_KEPT = Causes(retained=(Retained(name="losses", place=None, graphs=9, of_steps=9),))

RULE = Rule(
    code="ME002",
    name="memory-creep",
    check=check,
    fires_on=(
        example(step_ms=100, n=80, forward=50, utilization=_growing(40)),
        example(step_ms=100, n=80, forward=50, utilization=_growing(10)),
    ),
    quiet_on=(
        example(step_ms=100, n=80, forward=50, utilization=_growing(4)),
        example(step_ms=100, n=80, forward=50, utilization=_growing(80, until=6)),
        example(step_ms=100, n=80, forward=50, utilization=_growing(10, ripple=40)),
        example(step_ms=450, n=18, forward=50, utilization=_growing(40)),
        example(step_ms=100, n=80, forward=50, utilization=_growing(40), causes=_KEPT),
        example(step_ms=100, n=80, utilization=tuple(replace(each, private_bytes=0) for each in _growing(40))),
    ),
    no_cure="No recording shows which line keeps what it grows by, unless that is a graph, as ME001 says.",
)
