"""Start-up and warm-up take a large part of a short training.

## What it measures

In a recording of a whole training (`flatout diagnose --whole`): the time from the launch to the first step, and the
extra time of the first steps (compilation, allocation, caches), as a share of the whole. It fires at 10% and 20 s.

## Why it matters

Imports, building an index of files, reading a table, downloading, loading weights and compiling are paid at every
start: by each run of a hyperparameter search, by each restart after a failure. A script that splits 800,000 reviews
into words with a regular expression and numbers them trained for 85 s, 33 s of it before the first step (2 cores of an
AMD EPYC, torch 2.13): at most 1.74x. With the numbers kept in a file the first step came after 2 s, and the training
took 58 s, 1.46x (n=1 recording each, both beside other work on the machine).

## What to do

Keep what start-up computes (an index of files, tokenized text) in a file. Import only what is needed. Let
`torch.compile` reuse earlier compilations (`TORCHINDUCTOR_CACHE_DIR` on a persistent disk), and train without
compilation where the training is too short for it to pay off. Do several short trainings in one process.

## When it is wrong

The recorded training was made short on purpose, with fewer epochs than the real one.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Header, Run
from flatout.units import format_seconds, format_share

MIN_SHARE = 0.10
MIN_S = 20.0


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """EP006: a tenth of a whole training, and 20 s, pass before it is at speed."""
    starting_s = breakdown.outside_s(Phase.STARTUP)
    first = breakdown.warmup * breakdown.steps_each
    settling_s = max(0.0, breakdown.warmup_s - first * breakdown.median_ms / 1e3)
    share = (starting_s + settling_s) / breakdown.wall_s if breakdown.wall_s > 0 else 0.0
    if run.header.mode != "whole" or share < MIN_SHARE or starting_s + settling_s < MIN_S:
        return None
    return Finding(
        code="EP006",
        name="long-startup",
        phase=Phase.STARTUP,
        share=share,
        max_speedup=speedup_without(share),
        message=f"{format_seconds(starting_s)} pass before the first step, and the first {first} take "
        f"{format_seconds(settling_s)} longer than later ones: {format_share(share)} of the "
        f"{format_seconds(breakdown.wall_s)} that this training took (n={run.num_steps} steps). "
        "Keep what start-up computes in a file, or do several short trainings in one process.",
        evidence=(
            Evidence("start-up", starting_s, "s"),
            Evidence("slow first steps", settling_s, "s"),
            Evidence("whole training", breakdown.wall_s, "s"),
        ),
        fixes=(),
    )


_WHOLE = Header(script="train.py", mode="whole")
_LEFT_OUT = {"warmup": 130, "warmup_s": 26.0, "steps_each": 2}  # 260 steps, as long as later ones

RULE = Rule(
    code="EP006",
    name="long-startup",
    check=check,
    fires_on=(
        example(step_ms=100, n=600, forward=90, outside_s={Phase.STARTUP: 25.0}, header=_WHOLE),
        example(step_ms=100, n=900, forward=90, outside_s={Phase.STARTUP: 30.0}, header=_WHOLE),
    ),
    quiet_on=(
        example(step_ms=100, n=600, forward=90, outside_s={Phase.STARTUP: 25.0}),
        example(step_ms=100, n=6000, forward=90, outside_s={Phase.STARTUP: 25.0}, header=_WHOLE),
        example(step_ms=100, n=60, forward=90, outside_s={Phase.STARTUP: 8.0}, header=_WHOLE),
        example(
            step_ms=100,
            n=600,
            forward=90,
            outside_s={Phase.STARTUP: 8.0},
            header=_WHOLE,
            steps_each=2,
            told=_LEFT_OUT,
        ),
    ),
    no_cure="What it costs is paid once, before the steps that trials can compare: keep its result in a file.",
)
