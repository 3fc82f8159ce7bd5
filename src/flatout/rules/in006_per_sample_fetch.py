"""An in-memory array is read row by row, and the rows are stacked into a batch again.

## What it measures

A dataset that keeps its rows in one array or tensor, is asked for them one by one (no `__getitems__`, no
`batch_size=None`), and whose samples cost less than 60 us each: then fetching and stacking `batch_size` of them is
nearly all overhead. It fires for batches of at least 16, when fetching and collating take at least 15% of the step.

## Why it matters

Taking the rows of a batch in one indexing call costs microseconds (64 rows of 784 bytes: 2.3 us); one by one it costs
a millisecond. Factors between 3 and 320 are reported (pytorch#106704, pytorch#4959). The classic MNIST guide runs 4.9
times as fast with batched input on 2 cores, and its losses stay identical to the last printed digit.

## What to do

Give the dataset `__getitems__(self, indices)` that indexes the arrays once, with a `collate_fn` that passes the result
through; or drop the loader: `for index in torch.randperm(n).split(batch_size): x, y = data[index], labels[index]`.

## When it is wrong

Random transforms of single samples must then be rewritten for the batch; the samples measured here cost less than such
transforms do. Worker processes do not help: handing a batch over costs as much as building it.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_of_input
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.loader_facts import (
    fraction_of_batch,
    per_sample_s,
    picks_rows,
    samples_per_batch,
    training_loader,
)
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run, SamplePrefix
from flatout.units import format_ms

MIN_SHARE = 0.15
MIN_BATCH = 16
GATHER_BYTES_S = 2.8e9  # into fresh memory, conversion included
GATHER_CALL_S = 20e-6
INDEX_S = 0.11e-6  # a row: moving its index from a list into a tensor (n=200 for 64, 256 and 2,048 rows, 2026-11-27)


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN006: rows of an array in memory are fetched one by one."""
    loader = training_loader(run)
    if loader is None or loader.has_getitems or loader.iterable_style or not picks_rows(run, loader):
        return None
    if not loader.default_collate and loader.collate_s > loader.sample_s:
        return None  # the script's own collate function takes the time: IN004 reports it
    num_samples = samples_per_batch(run, loader)
    fraction = fraction_of_batch(loader, loader.sample_s + loader.collate_s)
    share = breakdown.share(Phase.INPUT) * fraction
    if num_samples < MIN_BATCH or share < MIN_SHARE:
        return None
    gathered_s = GATHER_CALL_S + num_samples * INDEX_S + loader.batch_bytes / GATHER_BYTES_S
    saved = max(0.0, 1 - gathered_s / (loader.sample_s + loader.collate_s))
    return Finding(
        code="IN006",
        name="per-sample-fetch",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_of_input(run, breakdown, loader, fraction * saved, headroom),
        location=loader.created_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent fetching {num_samples:.0f} rows of an array "
        f"in memory one by one ({format_ms(per_sample_s(run, loader) * 1000)} each) and stacking them again. Index the "
        "arrays once for the whole batch: give the dataset `__getitems__`.",
        evidence=(
            Evidence("sample", per_sample_s(run, loader) * 1e6, "us"),
            Evidence("collate", loader.collate_s * 1000, "ms"),
            Evidence("one indexing call, estimated", gathered_s * 1000, "ms"),
            Evidence("batches measured", loader.fetches, ""),
        ),
        fixes=("compiled-input",),
    )


_ROWS = LoaderFacts(
    is_training=True,
    batch_size=64,
    batch_bytes=200_704,
    created_at=Frame("train.py", 18, "main"),
    sample_s=0.0015,
    collate_s=0.0005,
    in_memory_bytes=47_040_000,
    fetches=200,
)
_DESCRIBED = line(1.0, ("data.py", 30, "angle"), ("data.py", 60, "Shots.__getitem__"), stage="sample")
_INDEXED = line(1.0, ("data.py", 60, "Shots.__getitem__"), ("train.py", 20, "main"), stage="sample", leaf="torch")
_VIEWS = replace(_ROWS, in_memory_bytes=0, prefix=SamplePrefix(checked=8, shares_memory=True))

RULE = Rule(
    code="IN006",
    name="per-sample-fetch",
    check=check,
    fires_on=(
        example(step_ms=3, input=2.1, forward=0.4, loaders=(_ROWS,)),
        example(step_ms=3, input=2.1, loaders=(_VIEWS,)),
        example(step_ms=3, input=2.1, loaders=(_VIEWS,), lines=(_INDEXED,)),
    ),
    quiet_on=(
        example(step_ms=15, input=2.1, forward=9, loaders=(_ROWS,)),
        example(step_ms=3, input=2.1, loaders=(replace(_ROWS, has_getitems=True),)),
        example(step_ms=8, input=6, loaders=(replace(_ROWS, sample_s=0.0045),)),
        example(step_ms=3, input=2.1, loaders=(replace(_ROWS, in_memory_bytes=0),)),
        example(step_ms=3, input=2.1, loaders=(_ROWS,), lines=(_DESCRIBED,)),
    ),
)
