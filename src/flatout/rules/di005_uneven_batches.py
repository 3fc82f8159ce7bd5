"""Ranks get batches of different size in the same step, and all of them wait for the one with the largest.

## What it measures

For each exchange of DistributedDataParallel, the number of elements that the model was called with on each rank, and
which rank came last: the one whose exchange runs alone for the shortest time. It fires when batches of one step differ
by 10% or more, the rank with the largest came last in at least 80% of those steps, this is not always the same rank,
and waiting for it takes at least 5% of the step.

## Why it matters

A step lasts as long as its longest batch. With random lengths, the longest batch grows with the number of ranks, and
the mean of the batches no longer matters.

## What to do

Give ranks batches of similar size in the same step: sort or bucket samples by length before they are distributed to
ranks, with a fixed number of tokens rather than of samples in each batch; or cut and pad to the same length everywhere.

## When it is wrong

The size is that of the tensors, not of the work: padding counts, and a mask that saves work does not show. Sorting by
length changes which samples share a batch.
"""

from collections.abc import Sequence

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.facts.gradient_exchanges import exposed, last_by_size
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Exchange, Frame, RankSummary, Run
from flatout.units import format_ms, format_share

MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """DI005: a twentieth of the step is waiting for the rank that happens to have the largest batch."""
    found = exposed(run)
    uneven = last_by_size(run)
    if found is None or uneven is None or found.step_s <= 0:
        return None
    share = min(1.0, found.waiting_s * found.per_step / found.step_s)
    if share < MIN_SHARE:
        return None
    return Finding(
        code="DI005",
        name="uneven-batches",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=found.seen.place,
        message=f"{format_share(share)} of each step is waiting for the rank with the largest batch "
        f"({format_ms(found.waiting_s * 1000)}, n={found.n}): batches of {len(run.ranks)} ranks differ in "
        f"{uneven.steps} steps, and the largest came last in {uneven.explained} of them. Distribute samples by length.",
        evidence=(
            Evidence("waiting for the last rank", found.waiting_s * 1000, "ms"),
            Evidence("steps with uneven batches", uneven.steps, ""),
            Evidence("largest came last", uneven.explained, ""),
        ),
        fixes=(),
    )


_AT = Frame("train.py", 30, "train")


def _ranks(sizes: Sequence[Sequence[int]], ms_each: float = 10.0) -> tuple[RankSummary, ...]:
    """Return ranks whose batches take `ms_each` for each element, in steps of 100 ms with one exchange of 2 ms."""
    longest = [max(step) for step in zip(*sizes, strict=True)]
    ranks = []
    for number, own in enumerate(sizes):
        waits = {
            str(i): (2.0 + ms_each * (most - mine)) / 1000
            for i, (mine, most) in enumerate(zip(own, longest, strict=True))
        }
        elements = {str(i): mine for i, mine in enumerate(own)}
        seen = Exchange(steps=20, exchanges=1.0, exposed_s=waits, elements=elements, step_s=0.1, place=_AT)
        ranks.append(RankSummary(rank=number, num_steps=60, median_ms=100.0, exchange=seen))
    return tuple(ranks)


_BY_CHANCE = ((2, 5, 3, 4, 1) * 4, (4, 2, 5, 1, 3) * 4)
_ONE = ((2,) * 20, (5,) * 20)

RULE = Rule(
    code="DI005",
    name="uneven-batches",
    check=check,
    no_cure="The script's own sampler decides how many rows a rank reads, and another split gives other batches.",
    fires_on=(
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(_BY_CHANCE)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks((*_BY_CHANCE, (1, 1, 1, 9, 1) * 4), 5.0)),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(_ONE)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(((3,) * 20, (3,) * 20))),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(_BY_CHANCE, 1.0)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks(_BY_CHANCE, -10.0)),
    ),
)
