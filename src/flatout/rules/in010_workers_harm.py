"""Waiting for a worker's batch takes longer than building the batch would.

## What it measures

The median wait for a batch (the first of each epoch left out) against the time a worker needs to build one: samples
and collate. It fires when the wait is at least 1.2 times the building time, and the difference is at least 10% of the
step: without workers, the training process would have had the batch sooner. It stays quiet where the deep run waited
less than half as long as the timed run: then files were in memory by that time, and its times say little.

## Why it matters

A worker copies each batch into shared memory (1.7 GB/s: 11.5 ms for 19 MB), sends it through a queue, and competes
with the training process for cores. On 2 cores, two workers made 32x32 images resized to 224 slower (2,950 -> 2,172
samples/s); the classic MNIST guide ran 0.72 times as fast with them, and row groups of a Parquet file 0.13 times.

## What to do

Set `num_workers=0`. If batches are still expensive then, make them cheaper: do the work for the whole batch at once,
or send uint8 and convert after the copy.

## When it is wrong

The time in the worker includes waiting for a core; on a machine with more cores the same script may gain from workers.
The bound is the wait, or the time saved by replaying a fixed batch where that is larger and was measured precisely
enough, minus the time to build a batch: a process that sleeps until its batch arrives also resumes its work more
slowly.
"""

from dataclasses import replace

from flatout.analysis.headroom_stages import gain_between
from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.worker_facts import Harm, workers_harm
from flatout.schema.facts import HELD_INPUT
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run
from flatout.units import format_ms


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN010: the wait for a batch is longer than the work in it."""
    loader = training_loader(run)
    harm = workers_harm(run, breakdown)
    if loader is None or harm is None:
        return None
    share, waited_ms, made_ms = harm.share, harm.waited_ms, harm.made_ms
    most = _speedup(breakdown, harm, headroom)
    return Finding(
        code="IN010",
        name="workers-harm",
        phase=Phase.INPUT,
        share=share,
        max_speedup=most,
        bound_by="the training process makes the batch itself then" if most < speedup_without(share) else "",
        location=loader.created_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent waiting for the {loader.num_workers} "
        f"workers, {format_ms(waited_ms)} a batch, and a worker needs only {format_ms(made_ms)} to make one. The "
        "training process would have it sooner: set num_workers=0.",
        evidence=(
            Evidence("wait for a batch", waited_ms, "ms"),
            Evidence("making a batch", made_ms, "ms"),
            Evidence("workers", loader.num_workers, ""),
            Evidence("batches measured", loader.fetches, ""),
        ),
        fixes=("loader-workers", "compiled-input"),
    )


def _speedup(breakdown: Breakdown, harm: Harm, headroom: tuple[Ceiling, ...]) -> float:
    """Return the speed-up when a batch costs only its making, and the rest of the step what it costs with a batch held.

    A process that sleeps until its batch arrives resumes its work more slowly: steps of 2.5 ms that waited 0.8 ms of
    it were 2.07x as fast with a batch held (n=8 pairs of blocks), and 2.05x without workers (n=4 pairs of runs).
    """
    made, waited = harm.made_ms * harm.batches / breakdown.mean_ms, harm.share
    held = gain_between(headroom, "", HELD_INPUT)
    if held is not None and held.sure:
        waited = max(waited, 1 - 1 / held.speedup)
    return speedup_without(max(0.0, waited - made))


_LOADER = LoaderFacts(
    is_training=True,
    num_workers=2,
    sample_s=0.008,
    collate_s=0.002,
    fetches=80,
    created_at=Frame("train.py", 9, "main"),
)

_HELD = Ceiling(ceiling=HELD_INPUT, median_ms=10.0, speedup=4.0, low=3.9, high=4.1, num_pairs=8)

RULE = Rule(
    code="IN010",
    name="workers-harm",
    check=check,
    fires_on=(
        example(step_ms=40, input=22, forward=10, loaders=(_LOADER,)),
        example(step_ms=20, input=12.5, forward=4, loaders=(_LOADER,)),
        example(step_ms=40, input=22, forward=10, loaders=(_LOADER,), headroom=(_HELD,)),
    ),
    quiet_on=(
        example(step_ms=40, input=11.5, forward=10, loaders=(_LOADER,)),
        example(step_ms=400, input=22, forward=300, loaders=(_LOADER,)),
        example(step_ms=40, input=22, loaders=(replace(_LOADER, num_workers=0),)),
    ),
)
