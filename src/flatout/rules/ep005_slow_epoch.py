"""Some epochs of a whole training took much longer than the others.

## What it measures

In a recording of a whole training (`flatout diagnose --whole`): the mean step of each epoch after the first, of which
there must be at least four. It fires when the epochs that are at least 25% above the median epoch together take longer
than the median by at least 3% of the time of all steps after the first epoch.

## Why it matters

What slows an epoch down comes from outside the loop: another job on the machine, a device that gets too hot, a file
system that is busy at certain hours, memory that runs out. A short measurement before the training cannot show it. In
a training of 40 epochs with 12 ms a step (`benchmarks/planted`, item_every_step) on 2 cores of an AMD EPYC, two other
processes computed for 5 s. The rule named epochs 26 to 28: 38 to 51 ms a step, 17% of all steps (n=1 recording).

## What to do

Look at the phase that is longer in these epochs, and at what else ran at that time. `flatout report` shows CPU time of
other processes (MS001).

## When it is wrong

A curriculum, growing batches or lengths, or layers that are unfrozen later: then epochs differ by design. Saving and
validating are left out, and so is an epoch that was cut short (at most half as many steps as the median epoch).
"""

from collections import defaultdict

from flatout.analysis.statistics import median
from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, steps_of
from flatout.rules.core.rule import Rule
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Header, Run, Step
from flatout.units import format_ms, format_ratio, format_share

MIN_EPOCHS = 4
SLOW = 1.25
MIN_SHARE = 0.03
NAMED = 5


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """EP005: epochs a quarter above the median epoch cost 3% of a whole training."""
    epochs = _by_epoch(run)
    if run.header.mode != "whole" or len(epochs) < MIN_EPOCHS:
        return None
    means = {number: _mean_ms(steps) for number, steps in epochs.items()}
    usual = median(list(means.values()))
    entries = median([len(steps) for steps in epochs.values()])
    slow = [number for number, mean in means.items() if mean >= SLOW * usual and len(epochs[number]) * 2 > entries]
    lost = sum((means[number] - usual) * len(epochs[number]) for number in slow)
    whole = sum(means[number] * len(epochs[number]) for number in epochs)
    share = lost / whole if whole > 0 else 0.0
    if not slow or share < MIN_SHARE:
        return None
    worst = max(slow, key=means.__getitem__)
    phase = _differs_in(epochs, slow)
    names = ", ".join(str(number + 1) for number in slow[:NAMED]) + (", ..." if len(slow) > NAMED else "")
    return Finding(
        code="EP005",
        name="slow-epoch",
        phase=phase,
        share=share,
        max_speedup=speedup_without(share),
        message=f"Epoch{'s' if len(slow) > 1 else ''} {names} (n={len(epochs)}) took longer: number {worst + 1} took "
        f"{format_ratio(means[worst] / usual)} as long as the median epoch ({format_ms(means[worst])} against "
        f"{format_ms(usual)} a step), mostly in {phase.value}. That costs {format_share(share)} of all steps. Look at "
        "what else ran then.",
        evidence=(
            Evidence("slow epochs", len(slow), ""),
            Evidence("middle epoch", usual, "ms a step"),
            Evidence("slowest epoch", means[worst], "ms a step"),
        ),
        fixes=(),
    )


def _by_epoch(run: Run) -> dict[int, list[Step]]:
    """Return the entries of each epoch after the first; the first one includes the warm-up."""
    found: dict[int, list[Step]] = defaultdict(list)
    for step in run.steps:
        if step.epoch > 0:
            found[step.epoch].append(step)
    return found


def _mean_ms(steps: list[Step]) -> float:
    return sum(step.wall_ns for step in steps) / len(steps) / 1e6


def _differs_in(epochs: dict[int, list[Step]], slow: list[int]) -> Phase:
    """Return the phase that grew most in the slow epochs."""

    def spent(numbers: list[int], column: int) -> float:
        parts = [step.phases_ns[column] for number in numbers for step in epochs[number]]
        return sum(parts) / len(parts) if parts else 0.0

    others = [number for number in epochs if number not in slow]
    return max(STEP_PHASES, key=lambda p: spent(slow, STEP_PHASES.index(p)) - spent(others, STEP_PHASES.index(p)))


def _training(*inputs_ms: float) -> tuple[Step, ...]:
    parts = [{Phase.INPUT: ms, Phase.FORWARD: 40.0} for ms in inputs_ms for _ in range(10)]
    return steps_of(parts, epoch=[number // 10 for number in range(len(parts))])


_WHOLE = Header(script="train.py", mode="whole")

RULE = Rule(
    code="EP005",
    name="slow-epoch",
    check=check,
    fires_on=(
        example(steps=_training(60, 10, 10, 80, 10, 10), header=_WHOLE),
        example(steps=_training(10, 10, 10, 35, 33, 10, 10, 10), header=_WHOLE),
    ),
    quiet_on=(
        example(steps=_training(60, 10, 10, 80, 10, 10)),
        example(steps=_training(60, 10, 12, 18, 11, 10), header=_WHOLE),
        example(steps=_training(90, 10, 10, 10), header=_WHOLE),
        example(steps=_training(10, 10, 10, 10, 10, 90)[:54], header=_WHOLE),
        example(steps=_training(*[10] * 20, 25, *[10] * 20), header=_WHOLE),
    ),
    no_cure="It comes from outside of the training: another job, heat, a file system that is busy at that hour.",
)
