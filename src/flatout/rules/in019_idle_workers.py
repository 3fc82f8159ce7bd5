"""Some workers have nothing to load, because the dataset is not split into enough parts for them.

## What it measures

How long each worker of an iterable-style dataset works on batches in the deep run (the second, instrumented run): the
time of all workers together, divided by that of the busiest one, is the number of workers that really work. It fires
when that is at most 0.8 times the number of workers, the wait for batches is at least 10% of the step, and spreading
the work evenly would make the step at least 10% faster on the cores there are.

## Why it matters

An iterable dataset splits its files or shards by worker: `files[info.id :: info.num_workers]`. With one file for four
workers, three end at once, and a single process makes all batches. The wait then looks as if more workers were needed,
and more workers change nothing.

## What to do

Write at least as many shards as workers, best a multiple of them, of equal size. Or let each worker take every n-th
sample of a shard (`itertools.islice(samples, info.id, None, info.num_workers)`), where skipping samples is cheap.

## When it is wrong

Where one shard is much larger than the others, the recording may only see the part in which all workers have one. The
rule is quiet where several loaders have workers: their processes are not told apart.
"""

from collections import defaultdict
from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.machine_facts import cores_in_use
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, Frame, LoaderFacts, Run, WorkerFacts

MIN_SHARE = 0.10
MIN_GAIN = 0.10
MOST_AT_WORK = 0.8
LEAST_FETCHES = 8  # of the busiest worker


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN019: workers without a part of the dataset would save a tenth of the step."""
    loader = training_loader(run)
    if loader is None or not loader.iterable_style or loader.num_workers < 2:
        return None
    busy = _busy(run, loader)
    waits = breakdown.share(Phase.INPUT)
    if not busy or waits < MIN_SHARE:
        return None
    at_work = sum(busy) / max(busy)
    if at_work > MOST_AT_WORK * loader.num_workers:
        return None
    used = cores_in_use(run) or 0.0
    left = max(1 - waits, at_work / loader.num_workers, used / max(1, run.environment.num_cpus))
    if 1 - left < MIN_GAIN:
        return None
    share = min(waits, 1 - left)
    idle = sum(each < (1 - MOST_AT_WORK) * max(busy) for each in busy)
    return Finding(
        code="IN019",
        name="idle-workers",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_without(1 - left),
        location=loader.created_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent waiting for {at_work:.1f} of the "
        f"{loader.num_workers} workers; those with hardly anything to load: {idle}. Split the dataset into at least "
        f"{loader.num_workers} parts of equal size, or split each part by worker.",
        evidence=(
            Evidence("workers", loader.num_workers, ""),
            Evidence("workers at work", at_work, ""),
            Evidence("busy time of the busiest worker", max(busy), "s"),
            Evidence("busy time of the least busy one", min(busy), "s"),
        ),
        fixes=(),
    )


def _busy(run: Run, loader: LoaderFacts) -> list[float]:
    """Return the seconds that each worker of the loader worked on batches; empty where that is not known.

    A worker that was started anew for each epoch counts by its number.
    """
    if sum(each.num_workers > 0 for each in run.loaders) > 1:
        return []
    busy: dict[int, float] = defaultdict(float)
    fetches: dict[int, int] = defaultdict(int)
    for worker in run.workers:
        busy[worker.worker_id] += worker.busy_s
        fetches[worker.worker_id] += worker.fetches
    known = set(range(loader.num_workers)) == set(busy)
    return list(busy.values()) if known and max(fetches.values()) >= LEAST_FETCHES and max(busy.values()) > 0 else []


_LOADER = LoaderFacts(
    is_training=True, num_workers=4, iterable_style=True, fetches=60, created_at=Frame("train.py", 9, "main")
)
_EIGHT = Environment(num_cpus=8)


def _workers(*busy_s: float) -> tuple[WorkerFacts, ...]:
    return tuple(
        WorkerFacts(worker_id=i, fetches=60 if seconds > 0.1 else 1, busy_s=seconds) for i, seconds in enumerate(busy_s)
    )


RULE = Rule(
    code="IN019",
    name="idle-workers",
    check=check,
    fires_on=(
        example(step_ms=40, input=30, loaders=(_LOADER,), environment=_EIGHT, workers=_workers(6, 0.01, 0.01, 0.01)),
        example(step_ms=40, input=30, loaders=(_LOADER,), environment=_EIGHT, workers=_workers(6, 6, 6, 0.0)),
    ),
    quiet_on=(
        example(step_ms=40, input=30, loaders=(_LOADER,), environment=_EIGHT, workers=_workers(6, 6, 5, 5)),
        example(step_ms=40, input=3, loaders=(_LOADER,), environment=_EIGHT, workers=_workers(6, 0.01, 0.01, 0.01)),
        example(
            step_ms=40, input=30, loaders=(replace(_LOADER, iterable_style=False),), environment=_EIGHT,
            workers=_workers(6, 0.01, 0.01, 0.01),
        ),
        example(
            step_ms=40, input=30, loaders=(_LOADER, replace(_LOADER, is_training=False)), environment=_EIGHT,
            workers=_workers(6, 0.01, 0.01, 0.01),
        ),
        example(step_ms=40, input=30, loaders=(_LOADER,), environment=_EIGHT, workers=_workers(6)),
    ),
    no_cure="The data set itself decides which part a worker reads, and another split gives other batches.",
)  # fmt: skip
