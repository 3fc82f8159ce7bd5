"""The host waits for each copy to the device, although the source is pinned and the copy could run asynchronously.

## What it measures

Copies from pinned memory made without `non_blocking=True`, by place. It fires on CUDA devices when they take at least
5% of the step. Repeated copies of an unchanged tensor are left to TR004. Where kernel times were measured, at most the
difference between step and kernel time counts.

## Why it matters

A blocking copy waits until the device has finished all work before it and the copy itself. Nothing can be launched
meanwhile, so the device is idle afterwards.

## What to do

`batch.to(device, non_blocking=True)`; better still, copy the next batch on a separate stream while this step runs.

## When it is wrong

Where the copy waits only for work that must be done anyway and the host has nothing else to do, little is gained.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.transfers import copies, is_repeated, lost, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Frame, Run, Transfer

MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """TR002: blocking copies from pinned memory take a twentieth of the step."""
    every, steps = copies(run), run.causes.num_steps if run.causes else 0
    blocking = [copy for copy in every if copy.pinned and copy.blocking and not is_repeated(copy, steps)]
    if not blocking or seconds(every) <= 0:
        return None
    share = lost(run, breakdown, seconds(blocking))
    if share < MIN_SHARE:
        return None
    return Finding(
        code="TR002",
        name="blocking-copy",
        phase=Phase.TRANSFER,
        share=share,
        max_speedup=speedup_without(share),
        location=max(blocking, key=lambda copy: copy.seconds).place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent waiting for copies from pinned memory. Copy "
        "with non_blocking=True.",
        evidence=(
            Evidence("copies seen", sum(copy.count for copy in blocking), ""),
            Evidence("copied", sum(copy.num_bytes for copy in blocking), "bytes"),
        ),
        fixes=("pinned-copy", "device-prefetch", "device-resident-input"),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)


def _copying(*, pinned: bool, blocking: bool) -> Causes:
    place = Frame("train.py", 41, "train")
    copy = Transfer(direction="to_device", place=place, count=20, seconds=0.2, pinned=pinned, blocking=blocking)
    return Causes(transfers=(copy,))


_BLOCKING = _copying(pinned=True, blocking=True)

RULE = Rule(
    code="TR002",
    name="blocking-copy",
    check=check,
    settings={
        "accelerate": "`Accelerator(dataloader_config=DataLoaderConfiguration(non_blocking=True))`",
    },
    fires_on=(
        example(step_ms=80, transfer=12, forward=60, environment=_GPU, causes=_BLOCKING),
        example(step_ms=80, transfer=4.5, forward=60, environment=_GPU, causes=_BLOCKING),
    ),
    quiet_on=(
        example(step_ms=80, transfer=3.9, forward=60, environment=_GPU, causes=_BLOCKING),
        example(step_ms=80, transfer=12, environment=_GPU, causes=_copying(pinned=True, blocking=False)),
        example(step_ms=80, transfer=12, environment=_GPU, causes=_copying(pinned=False, blocking=True)),
    ),
)
