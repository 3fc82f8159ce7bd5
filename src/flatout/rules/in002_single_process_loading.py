"""The training process builds every batch itself, and does not train meanwhile.

## What it measures

A training loader with `num_workers=0` whose input takes at least 15% of the step, and a batch at least 3 ms to build.
The gain from workers is bounded by the cores available: CPU work can at best be spread evenly over them, waiting for
files costs no core, and handing a batch over costs 0.2 ms plus a copy at 1.7 GB/s. It fires when this bound is at least
1.05x and a batch takes at least twice as long to make as to hand over. On a machine with at most two cores, 78% of the
bound is promised, but at least 1.05x: steps take longer beside workers that fill the cores (75, 79 and 80% of the bound
were reached in `keyword_spotting`, `masked_tokens` and `pet_photos`, below). Rows of an array in memory are left to
IN006, and samples that wait for something other than the CPU to IN012.

## Why it matters

While one core runs Python, the others are idle. Measured on 2 cores: JPEG decoding 468 -> 893 images/s with two
workers, 1 ms of Python a sample 1.24k -> 2.44k samples/s, 5 ms of waiting a sample 196 -> 3,041 samples/s with 16.

## What to do

`DataLoader(..., num_workers=2, persistent_workers=True)`; add workers while the step gets faster, up to the number of
free cores. A script that draws random numbers in its dataset draws different ones in workers.

## When it is wrong

Large samples that are cheap to make lose more in the copy than they gain (32x32 images resized to 224: 2,950 -> 2,172
images/s with two workers); the bound includes that copy. An iterable dataset that does not split itself by worker
delivers every sample once per worker; `flatout tune` reads it ahead instead. A dataset that holds an open file or a
CUDA tensor may not survive the fork.
"""

from dataclasses import replace

from flatout.rules.core.bounds import handover_s, speedup_with_workers
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.loader_facts import batch_s, cpu_share, gave_batches, picks_rows, training_loader
from flatout.rules.facts.worker_facts import samples_wait
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, Frame, LoaderFacts, Run, Utilization
from flatout.units import format_ms

MIN_SHARE = 0.15
MIN_BATCH_S = 3e-3
MIN_SPEEDUP = 1.05
MIN_WORK_PER_HANDOVER = 2.0
CROWDED = 0.78  # part of the bound that is reached where workers and the training fill all cores
FEW_CORES = 2


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN002: batches expensive enough for a worker are built between the steps."""
    loader = training_loader(run)
    share = breakdown.share(Phase.INPUT)
    if loader is None or loader.num_workers > 0 or not gave_batches(loader) or share < MIN_SHARE:
        return None
    built_s = batch_s(loader) or breakdown.ms(Phase.INPUT) / 1000
    if samples_wait(run, breakdown, loader):
        return None  # IN012 names the line that waits
    if built_s < MIN_BATCH_S or built_s < MIN_WORK_PER_HANDOVER * handover_s(loader) or picks_rows(run, loader):
        return None
    most = speedup_with_workers(run, breakdown, loader, cpu_share(loader))
    if most < MIN_SPEEDUP:
        return None
    crowded = CROWDED if run.environment.num_cpus <= FEW_CORES else 1.0
    split = " An iterable dataset must split itself by worker." if loader.iterable_style else ""
    return Finding(
        code="IN002",
        name="single-process-loading",
        phase=Phase.INPUT,
        share=share,
        max_speedup=max(MIN_SPEEDUP, most * crowded),
        bound_by=f"workers and the training share {run.environment.num_cpus} cores",
        location=loader.created_at,
        message=f"{of_step(breakdown, breakdown.ms(Phase.INPUT))} is spent building the next batch in the training "
        f"process (num_workers=0, {format_ms(built_s * 1000)} a batch). Worker processes would build it while the step "
        f"runs (cores here: {run.environment.num_cpus}).{split}",
        evidence=(
            Evidence("batch", built_s * 1000, "ms"),
            Evidence("hand-over", handover_s(loader) * 1000, "ms"),
            Evidence("CPU share of a sample", cpu_share(loader), ""),
            Evidence("cores", run.environment.num_cpus, ""),
        ),
        fixes=("loader-workers", "core-split", "compiled-input"),
    )


_LOADER = LoaderFacts(
    is_training=True,
    batch_size=64,
    batch_bytes=800_000,
    created_at=Frame("train.py", 12, "main"),
    sample_s=0.055,
    sample_cpu_s=0.055,
    collate_s=0.005,
    fetches=30,
)
_EIGHT_CORES = Environment(num_cpus=8)
_BUSY = tuple(Utilization(at_s=0.5 * i, main_cpu=1.97) for i in range(12))

RULE = Rule(
    code="IN002",
    name="single-process-loading",
    check=check,
    after=("slow-sample-line", "slow-collate", "slow-sampler", "repeated-deterministic-work"),
    settings={
        "lightning": "`num_workers` of the DataLoader that your module or DataModule returns",
        "fabric": "`num_workers` of the DataLoader handed to `fabric.setup_dataloaders`",
        "transformers": "`TrainingArguments(dataloader_num_workers=2)`",
    },
    fires_on=(
        example(step_ms=100, input=60, forward=30, loaders=(_LOADER,), environment=_EIGHT_CORES),
        example(step_ms=100, input=60, forward=30, loaders=(_LOADER,), environment=Environment(num_cpus=2)),
    ),
    quiet_on=(
        example(step_ms=100, input=14.9, forward=70, loaders=(_LOADER,), environment=_EIGHT_CORES),
        example(step_ms=100, input=60, loaders=(replace(_LOADER, num_workers=2),), environment=_EIGHT_CORES),
        example(step_ms=100, input=60, loaders=(replace(_LOADER, batch_bytes=60_000_000),), environment=_EIGHT_CORES),
        example(
            step_ms=5, input=2.9, loaders=(replace(_LOADER, sample_s=0.0028, collate_s=0.0),), environment=_EIGHT_CORES
        ),
        example(step_ms=100, input=60, loaders=(_LOADER,), environment=Environment(num_cpus=2), utilization=_BUSY),
        example(step_ms=100, input=60, loaders=(replace(_LOADER, sample_cpu_s=0.001),), environment=_EIGHT_CORES),
    ),
)
