"""One rank's own work takes longer, and every other rank waits for it in each step.

## What it measures

For each rank, the time of its own work in a step: the sum of the median times of all phases except backward and sync,
in which ranks wait for each other and for the device. It fires when the longest is above the median of the others by at
least 5% of the step (the median over ranks).

## Why it matters

The exchange of gradients ends when the last rank arrives: the training runs at the pace of the slowest. Ten per cent
on one rank of a thousand cost as much as ten per cent on all of them.

## What to do

Look at the phase in which it differs. Input: its disk, its share of the cores, its part of the data. Forward: longer
or more samples a batch, a device that is shared or throttled. Host: a rank that also logs, saves or evaluates.

## When it is wrong

Without an exchange in the backward pass (gradients averaged by hand, pipeline stages) ranks wait elsewhere, and the
wait would be taken for work. With two ranks "the others" are one. Batches whose size changes from step to step are left
to DI005. Where ranks run more threads than there are cores, a rank whose forward pass or optimizer takes longer is not
reported, because which one gets the cores is chance (DI002), unless its batches hold at least 10% more samples.
"""

from dataclasses import replace

from flatout.analysis.statistics import median
from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at
from flatout.rules.facts.gradient_exchanges import last_by_size
from flatout.rules.facts.machine_facts import cores_are_shared
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Environment, RankSummary, Run
from flatout.units import format_ms, format_share

MIN_SHARE = 0.05
COMPUTING = (Phase.FORWARD, Phase.OPTIMIZER)
OWN = tuple(phase for phase in STEP_PHASES if phase not in (Phase.BACKWARD, Phase.SYNC))
MORE_SAMPLES = 1.1


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """DI001: one rank's own work takes a twentieth of the step longer than that of the others."""
    if len({rank.rank for rank in run.ranks}) < 2 or not all(rank.phases_ms for rank in run.ranks):
        return None
    slowest = max(run.ranks, key=_own_ms)
    others = [rank for rank in run.ranks if rank is not slowest]
    step_ms = median([sum(rank.phases_ms.values()) for rank in run.ranks])
    behind_ms = _own_ms(slowest) - median([_own_ms(rank) for rank in others])
    share = min(1.0, behind_ms / step_ms) if step_ms > 0 else 0.0
    if share < MIN_SHARE or last_by_size(run) is not None:
        return None
    phase = max(OWN, key=lambda each: _differs_ms(slowest, others, each))
    place = slowest.hottest.get(phase.value)
    usual = median([rank.samples_per_step for rank in others])
    larger = usual > 0 and slowest.samples_per_step >= MORE_SAMPLES * usual
    if cores_are_shared(run) and phase in COMPUTING and not larger:
        return None
    batches = f", and its batches hold {slowest.samples_per_step:.0f} samples, not {usual:.0f}" if larger else ""
    return Finding(
        code="DI001",
        name="straggler",
        phase=phase,
        share=share,
        max_speedup=speedup_without(share),
        location=place,
        message=f"Rank {slowest.rank} holds up {len(others)} other{'s' if len(others) > 1 else ''}: its own work takes "
        f"{format_ms(behind_ms)} longer, {format_share(share)} of each step (n={slowest.num_steps}), most of it "
        f"{phase.value}{f' in {at(place)}' if place else ''}{batches}. Look there for what is different on that rank.",
        evidence=(
            Evidence("behind", behind_ms, "ms"),
            Evidence(f"more {phase.value}", _differs_ms(slowest, others, phase), "ms"),
            Evidence("ranks", len(run.ranks), ""),
        ),
        fixes=(),
    )


def _own_ms(rank: RankSummary) -> float:
    return sum(rank.phases_ms.get(phase.value, 0.0) for phase in OWN)


def _differs_ms(rank: RankSummary, others: list[RankSummary], phase: Phase) -> float:
    usual = median([other.phases_ms.get(phase.value, 0.0) for other in others])
    return rank.phases_ms.get(phase.value, 0.0) - usual


def _rank(number: int, **phases_ms: float) -> RankSummary:
    return RankSummary(rank=number, num_steps=60, median_ms=sum(phases_ms.values()), phases_ms=phases_ms)


_EVEN = tuple(_rank(number, input=5.0, forward=30.0, backward=65.0) for number in range(4))
_SLOW_INPUT = (*_EVEN[:2], _rank(2, input=25.0, forward=30.0, backward=45.0), _EVEN[3])
_SLOW_FORWARD = (*_EVEN[:3], _rank(3, input=5.0, forward=50.0, backward=45.0))
_SHARED = Environment(torch_threads=2, num_cpus=2, device_kind="cpu")
_LONGER = (
    replace(_rank(0, input=5.0, forward=30.0, backward=65.0), samples_per_step=8.0),
    replace(_rank(1, input=5.0, forward=38.0, backward=57.0), samples_per_step=12.0),
)

RULE = Rule(
    code="DI001",
    name="straggler",
    check=check,
    no_cure="A rank is slow for a cause of its own, and the findings of that rank have the cures.",
    fires_on=(
        example(step_ms=100, forward=30, ranks=_SLOW_INPUT),
        example(step_ms=100, forward=30, ranks=_LONGER),
        example(step_ms=100, forward=30, ranks=_SLOW_FORWARD),
        example(step_ms=100, forward=30, ranks=_SLOW_INPUT, environment=_SHARED),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, ranks=_EVEN),
        example(step_ms=100, forward=30, ranks=(*_EVEN[:3], _rank(3, input=9.0, forward=30.0, backward=61.0))),
        example(step_ms=100, forward=30, ranks=_SLOW_INPUT[2:3]),
        example(step_ms=100, forward=30, ranks=_SLOW_FORWARD, environment=_SHARED),
    ),
)
