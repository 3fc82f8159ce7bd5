"""Ranks have epochs of different length, and those that finish first wait for the longest.

## What it measures

The batches of a whole epoch on each rank, and how long it is until the next epoch begins. It fires when that takes
equally long on all ranks (within 10%), but the longest epoch has 5% more batches than ranks have on average, and two
more than the shortest: then the others wait at its end. Where ranks do not wait for each other, epochs do not take
equally long.

## Why it matters

An epoch lasts as long as on the rank with most data. Two ranks with 20 and 60 batches of 20 ms needed 1.4 s an epoch
(n=2 runs), with 40 each 1.0 s (n=3).

## What to do

Distribute samples evenly: `DistributedSampler` gives every rank the same number. Where files or shards are distributed,
cut them to the same number of samples, or let a rank that has finished take over some of another's.

## When it is wrong

Where an epoch takes longer than the recording, nothing is reported: `flatout diagnose --whole` records all epochs.
Batches that are smaller on the rank with more of them may take as long in total.
"""

from collections.abc import Sequence
from statistics import fmean

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.facts.loader_facts import training_loader
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, RankSummary, Run
from flatout.units import format_seconds, format_share

MIN_SHARE = 0.05
MIN_BATCHES = 2
EQUALLY_LONG = 1.1


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """DI006: the mean rank is through with its epoch a twentieth earlier than the last."""
    batches = {rank.rank: rank.epoch_batches for rank in run.ranks}
    if len(batches) < 2 or len(batches) != len(run.ranks) or min(batches.values()) <= 0:
        return None
    seconds = [rank.epoch_s for rank in run.ranks]
    if not 0 < max(seconds) <= EQUALLY_LONG * min(seconds):
        return None
    longest, mean = max(batches.values()), fmean(batches.values())
    share = 1 - mean / longest
    if longest < (1 + MIN_SHARE) * mean or longest - min(batches.values()) < MIN_BATCHES:
        return None
    last = max(batches, key=batches.__getitem__)
    loader = training_loader(run)
    return Finding(
        code="DI006",
        name="uneven-shards",
        phase=Phase.EPOCH_GAP,
        share=share,
        max_speedup=speedup_without(share),
        location=loader.created_at if loader is not None else None,
        message=f"Rank {last} has {longest} batches in an epoch, and {len(batches)} ranks have {mean:.1f} on average: "
        f"all take {format_seconds(max(seconds))} for it, {format_share(share)} of that waiting "
        f"(n={len(batches)} ranks). Distribute samples evenly.",
        evidence=(
            Evidence("most batches in an epoch", longest, ""),
            Evidence("fewest", min(batches.values()), ""),
            Evidence("ranks", len(batches), ""),
        ),
        fixes=(),
    )


_LOADER = LoaderFacts(is_training=True, batch_size=32, created_at=Frame("train.py", 24, "main"))


def _ranks(batches: Sequence[int], seconds: Sequence[float] = (6.0, 6.1)) -> tuple[RankSummary, ...]:
    return tuple(
        RankSummary(rank=number, num_steps=60, median_ms=100.0, epoch_batches=each, epoch_s=seconds[number % 2])
        for number, each in enumerate(batches)
    )


RULE = Rule(
    code="DI006",
    name="uneven-shards",
    check=check,
    no_cure="The script's own sampler decides how long the epoch of a rank is, and another split gives other batches.",
    fires_on=(
        example(step_ms=100, forward=30, backward=60, ranks=_ranks((60, 100)), loaders=(_LOADER,)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks((90, 90, 90, 110))),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, ranks=_ranks((100, 100)), loaders=(_LOADER,)),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks((60, 100), (6.0, 10.0))),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks((96, 100))),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks((4, 5))),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks((0, 100), (0.0, 10.0))),
        example(step_ms=100, forward=30, backward=60, ranks=_ranks((100,))),
    ),
)
