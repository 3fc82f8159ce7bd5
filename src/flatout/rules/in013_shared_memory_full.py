"""Workers hand their batches over in `/dev/shm`, and it is nearly full.

## What it measures

How full `/dev/shm` was while steps ran, as often as the machine was sampled. It fires for a loader with workers when
it reached 85%.

## Why it matters

Each worker keeps `prefetch_factor` batches there. When it is full, a worker dies with a bus error, often hours into
the training and without a line of Python. Containers start with 64 MB of it.

## What to do

Start the container with more (`docker run --shm-size=8g`, `--ipc=host`), or lower `num_workers` or
`prefetch_factor`. `torch.multiprocessing.set_sharing_strategy("file_system")` does not help: it is the same memory.

## When it is wrong

Another program may hold what is in use; then this one has only what is left.
"""

from dataclasses import replace

from flatout.rules.example import example
from flatout.rules.machine import while_steps_ran
from flatout.rules.rule import Rule
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run, Utilization
from flatout.units import format_bytes, format_share

MIN_SHARE = 0.85


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN013: shared memory was 85% full while workers used it."""
    loaders = [loader for loader in run.loaders if loader.num_workers > 0]
    samples = while_steps_ran(run)
    most = max((sample.shm_used_share for sample in samples), default=0.0)
    if not loaders or most < MIN_SHARE:
        return None
    largest = max(loaders, key=_queued_bytes)
    return Finding(
        code="IN013",
        name="shared-memory-full",
        phase=Phase.INPUT,
        share=0.0,
        max_speedup=1.0,
        location=largest.created_at,
        message=f"/dev/shm was {format_share(most)} full (n={len(samples)}); the batches that {largest.num_workers} "
        f"workers keep there take up to {format_bytes(_queued_bytes(largest))}. Make it larger, or use fewer workers.",
        evidence=(Evidence("most in use", most, ""), Evidence("queued batches", _queued_bytes(largest), "bytes")),
        fixes=(),
    )


def _queued_bytes(loader: LoaderFacts) -> int:
    return loader.num_workers * max(1, loader.prefetch_factor) * loader.batch_bytes


_LOADER = LoaderFacts(
    num_workers=4, prefetch_factor=2, batch_bytes=19_000_000, created_at=Frame("train.py", 20, "main")
)


def _filled(share: float) -> tuple[Utilization, ...]:
    return tuple(Utilization(at_s=0.5 * i, shm_used_share=share) for i in range(12))


RULE = Rule(
    code="IN013",
    name="shared-memory-full",
    check=check,
    fires_on=(
        example(step_ms=100, forward=50, loaders=(_LOADER,), utilization=_filled(0.86)),
        example(step_ms=100, forward=50, loaders=(replace(_LOADER, prefetch_factor=8),), utilization=_filled(0.99)),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, loaders=(_LOADER,), utilization=_filled(0.84)),
        example(step_ms=100, forward=50, loaders=(replace(_LOADER, num_workers=0),), utilization=_filled(0.99)),
        example(step_ms=100, forward=50, loaders=(_LOADER,)),
    ),
)
