"""Gradients are exchanged after every micro-batch, although the optimizer steps only after several of them.

## What it measures

The backward passes in which DistributedDataParallel exchanges gradients, for each optimizer step, and whether the next
one added to the same gradients: then the exchange before it was not needed. It fires when there is at least one such
exchange in two steps, and those not needed run alone, or wait for the last rank, for at least 2% of the step. The bound
counts them in full.

## Why it matters

With four micro-batches a step, three of four exchanges could be left out: the sum of the gradients is the same.

## What to do

Put all micro-batches of a step but the last into `with model.no_sync():`, forward pass and backward pass both. In
accelerate `with accelerator.accumulate(model):`; Lightning does it with `accumulate_grad_batches`.

## When it is wrong

Where gradients are read after each micro-batch (clipped one by one, say), they have to be the exchanged ones. Under
FSDP `no_sync` keeps whole gradients in memory.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at
from flatout.rules.facts.gradient_exchanges import exposed
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Exchange, Frame, RankSummary, Run
from flatout.units import format_ms, format_share

MIN_NEEDLESS = 0.5  # in a step
MIN_SHARE = 0.02


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """DI004: exchanges whose gradients are added to before the optimizer reads them take 2% of the step."""
    found = exposed(run)
    if found is None or found.per_step <= 0:
        return None
    needless = min(rank.exchange.needless for rank in run.ranks if rank.exchange is not None)
    alone_s = found.itself_s + found.waiting_s
    share = min(1.0, alone_s * needless / found.step_s) if found.step_s > 0 else 0.0
    most = min(needless / found.per_step, found.seen.exchange_s * needless / max(1e-9, found.step_s))
    if needless < MIN_NEEDLESS or share < MIN_SHARE:
        return None
    place = found.seen.place
    return Finding(
        code="DI004",
        name="exchange-while-accumulating",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(max(share, most)),
        bound_by="the part of the exchange that overlaps with the backward pass slows that down",
        location=place,
        message=f"Gradients are exchanged {found.per_step:.1f} times in each step, {needless:.1f} of them before the "
        f"next micro-batch adds to them (n={found.seen.steps}): {format_share(share)} of the step, "
        f"{format_ms(alone_s * 1000)} each. Put all micro-batches but the last into no_sync()"
        f"{f', from {at(place)} on' if place else ''}.",
        evidence=(
            Evidence("exchanges in a step", found.per_step, ""),
            Evidence("not needed", needless, ""),
            Evidence("exchange alone, or waiting", alone_s * 1000, "ms"),
        ),
        fixes=("exchange-once",),
    )


_AT = Frame("train.py", 30, "train")


def _ranks(exchanges: float, needless: float, alone_ms: float = 5.0, count: int = 2) -> tuple[RankSummary, ...]:
    seen = Exchange(
        steps=20,
        exchanges=exchanges,
        needless=needless,
        exposed_s={str(i): alone_ms / 1000 for i in range(20)},
        step_s=0.1,
        place=_AT,
    )
    return tuple(RankSummary(rank=rank, num_steps=60, median_ms=100.0, exchange=seen) for rank in range(count))


_FOUR = _ranks(4.0, 3.0)
_HALF_KNOWN = (_FOUR[0], replace(_FOUR[1], exchange=None))

RULE = Rule(
    code="DI004",
    name="exchange-while-accumulating",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, ranks=_FOUR),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(2.0, 1.0, count=4)),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(1.0, 0.0)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(20.0, 0.0)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(4.0, 3.0, alone_ms=0.6)),
        example(step_ms=100, forward=30, backward=60, ranks=_HALF_KNOWN),
        example(step_ms=100, forward=30, backward=60, ranks=_FOUR[:1]),
    ),
)
