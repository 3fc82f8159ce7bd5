"""Workers hand over their batches in `/dev/shm`, and it is nearly full.

## What it measures

How full `/dev/shm` was at the times when the machine was sampled while steps ran. It fires for a loader with workers
when it reached 85%, and when the script failed with an error that mentions shared memory.

## Why it matters

Each worker keeps `prefetch_factor` batches there, and one or two more are on their way. When it is full, a worker
fails ("unable to allocate shared memory", or a bus error without a line of Python), often hours into the training.
Containers start with 64 MB of it. With 64 MB (torch 2.13), two workers with `prefetch_factor=4` and batches of 6.5 MB
trained with 97% of it in use (n=1 recording); batches of 7.2 MB failed after 9 steps, and batches of 17 MB with
`prefetch_factor=2` failed in each of n=4 runs.

## What to do

Start the container with more (`docker run --shm-size=8g`, `--ipc=host`), or lower `num_workers` or `prefetch_factor`.
`torch.multiprocessing.set_sharing_strategy("file_system")` does not help: it uses the same memory.

## When it is wrong

Another program may hold the memory in use; then this one has only the rest.
"""

from dataclasses import replace

from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.facts.machine_facts import while_steps_ran
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import End, Frame, LoaderFacts, Run, Utilization
from flatout.units import format_bytes, format_share

MIN_SHARE = 0.85
SAYS_IT = ("allocate shared memory", "out of shared memory", "insufficient shared memory")
"""In torch's errors: no room for a batch, a worker killed by a bus error. GPU kernels use other words."""


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN013: shared memory was 85% full while workers used it, or too small for what they make."""
    loaders = [loader for loader in run.loaders if loader.num_workers > 0]
    samples = while_steps_ran(run)
    most = max((sample.shm_used_share for sample in samples), default=0.0)
    too_small = run.end.reason == "script failed" and any(text in run.end.error for text in SAYS_IT)
    if not loaders or (most < MIN_SHARE and not too_small):
        return None
    largest = max(loaders, key=_queued_bytes)
    seen = f"/dev/shm was {format_share(most)} full (n={len(samples)})"
    if too_small:
        seen = f"The script failed because /dev/shm had no room, after n={run.num_steps} steps"
    return Finding(
        code="IN013",
        name="shared-memory-full",
        phase=Phase.INPUT,
        share=0.0,
        max_speedup=1.0,
        location=largest.created_at,
        message=f"{seen}; the batches that {largest.num_workers} workers keep there take up to "
        f"{format_bytes(_queued_bytes(largest))}, and one or two more are on their way. Make /dev/shm larger, or use "
        "fewer workers.",
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


_FAILED = End(reason="script failed", error="RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2>")

RULE = Rule(
    code="IN013",
    name="shared-memory-full",
    check=check,
    shown_by_few=True,
    fires_on=(
        example(step_ms=100, forward=50, loaders=(_LOADER,), utilization=_filled(0.86)),
        example(step_ms=100, forward=50, loaders=(replace(_LOADER, prefetch_factor=8),), utilization=_filled(0.99)),
        example(step_ms=100, n=2, forward=50, loaders=(_LOADER,), end=_FAILED),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, loaders=(_LOADER,), utilization=_filled(0.84)),
        example(step_ms=100, forward=50, loaders=(replace(_LOADER, num_workers=0),), utilization=_filled(0.99)),
        example(step_ms=100, forward=50, loaders=(_LOADER,)),
        example(step_ms=100, forward=50, loaders=(_LOADER,), end=replace(_FAILED, error="ValueError: no such file")),
    ),
    no_cure="Whoever starts the container decides how large it is, and fewer workers are a setting of the script's.",
)
