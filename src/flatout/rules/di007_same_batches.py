"""All ranks compute the same batches, and the mean of their gradients is what one of them has.

## What it measures

A digest of what the model in DistributedDataParallel is called with, for the first calls of each rank in the deep run.
It fires when the ranks have equal digests call by call, in at least three calls, and the calls of a rank differ from
each other.

## Why it matters

With N ranks an epoch has N times the steps that it needs, and the global batch is that of one rank: nothing is shared.

## What to do

Give the training loader a `DistributedSampler` and call its `set_epoch` in each epoch; an iterable data set has to
yield every N-th sample, by its rank. The global batch is then N times as large: the learning rate may have to follow.

## When it is wrong

Ranks that share one model (tensor or pipeline parallel) are meant to see the same batches; those are seldom wrapped in
DistributedDataParallel. A sample of each tensor is compared, not every value.
"""

from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Exchange, Frame, LoaderFacts, RankSummary, Run

MIN_CALLS = 3


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """DI007: every rank is called with what the others are called with."""
    seen = [rank.exchange.contents for rank in run.ranks if rank.exchange is not None]
    calls = min(map(len, seen), default=0)
    if len(seen) < 2 or len(seen) < len(run.ranks) or calls < MIN_CALLS:
        return None
    first = seen[0][:calls]
    if len(set(first)) < MIN_CALLS or any(other[:calls] != first for other in seen):
        return None
    ranks = len(seen)
    place = next((loader.created_at for loader in run.loaders if loader.is_training), None)
    where = f" of {at(place)}" if place is not None else ""
    return Finding(
        code="DI007",
        name="same-batches",
        phase=Phase.INPUT,
        share=1 - 1 / ranks,
        max_speedup=float(ranks),
        location=place,
        message=f"All {ranks} ranks are called with the same batches (n={calls} calls compared): each computes what "
        f"the others compute. Give the loader{where} a DistributedSampler.",
        evidence=(Evidence("ranks", ranks, ""), Evidence("calls compared", calls, "")),
        fixes=(),
    )


_PLACE = Frame("train.py", 12, "main")
_LOADER = (LoaderFacts(name="Images", created_at=_PLACE, is_training=True),)


def _ranks(*contents: str) -> tuple[RankSummary, ...]:
    return tuple(
        RankSummary(
            rank=number,
            num_steps=60,
            median_ms=100.0,
            exchange=Exchange(steps=20, exchanges=1.0, exposed_s={}, step_s=0.1, contents=tuple(each)),
        )
        for number, each in enumerate(contents)
    )


RULE = Rule(
    code="DI007",
    name="same-batches",
    check=check,
    fires_on=(
        example(step_ms=100, forward=40, backward=50, ranks=_ranks("abcd", "abcd"), loaders=_LOADER),
        example(step_ms=100, forward=40, backward=50, ranks=_ranks("abcd", "abcde", "abc")),
    ),
    quiet_on=(
        example(step_ms=100, forward=40, backward=50, ranks=_ranks("abcd", "efgh"), loaders=_LOADER),
        example(step_ms=100, forward=40, backward=50, ranks=_ranks("abcd", "abce")),
        example(step_ms=100, forward=40, backward=50, ranks=_ranks("aaaa", "aaaa")),
        example(step_ms=100, forward=40, backward=50, ranks=_ranks("ab", "ab")),
        example(step_ms=100, forward=40, backward=50, ranks=_ranks("abcd")),
        example(
            step_ms=100,
            forward=40,
            backward=50,
            ranks=(*_ranks("abcd", "abcd"), RankSummary(rank=2, num_steps=9, median_ms=1.0)),
        ),
    ),
    no_cure="Another sampler gives the ranks other batches and a larger global batch, which is another training.",
)
