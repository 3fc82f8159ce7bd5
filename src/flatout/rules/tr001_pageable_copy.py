"""Batches are copied to the device from ordinary, pageable memory.

## What it measures

The host-to-device copies that the deep run (the second, instrumented run) saw, by place, and whether their source was
pinned. It fires on CUDA devices when pageable copies take at least 5% of the step. Repeated copies of an unchanged
tensor are left to TR004. Where kernel times were measured, at most the difference between step and kernel time counts.

## Why it matters

The driver first copies a pageable tensor into its own pinned buffer, and the call returns only after that. This is
slower, and never overlaps with computation.

## What to do

`DataLoader(..., pin_memory=True)` and `.to(device, non_blocking=True)`; a batch of your own class needs a
`pin_memory()` method for this. Create tensors that do not come from a loader on the device.

## When it is wrong

Pinning costs a copy on the host, too. For batches of a few kilobytes neither matters. Pinned memory cannot be paged
out: keep it well below the machine's memory.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.transfers import copies, is_repeated, lost, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Frame, Run, Transfer
from flatout.units import format_bytes

MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """TR001: copies from pageable memory take a twentieth of the step."""
    every, steps = copies(run), run.causes.num_steps if run.causes else 0
    pageable = [copy for copy in every if not (copy.pinned or is_repeated(copy, steps))]
    if not pageable or seconds(every) <= 0:
        return None
    share = lost(run, breakdown, seconds(pageable))
    if share < MIN_SHARE:
        return None
    count, num_bytes = sum(copy.count for copy in pageable), sum(copy.num_bytes for copy in pageable)
    return Finding(
        code="TR001",
        name="pageable-copy",
        phase=Phase.TRANSFER,
        share=share,
        max_speedup=speedup_without(share),
        location=max(pageable, key=lambda copy: copy.seconds).place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent copying to the device from pageable "
        f"memory ({format_bytes(num_bytes / max(1, count))} a copy). {_cure(run)}.",
        evidence=(Evidence("copies seen", count, ""), Evidence("copied", num_bytes, "bytes")),
        fixes=("pinned-copy", "device-prefetch", "device-resident-input"),
    )


def _cure(run: Run) -> str:
    """Return how to pin the source: without a loader, or with one that pins, pin_memory=True changes nothing."""
    loader = training_loader(run)
    if loader is None:
        return "Create these tensors on the device, or pin them (`.pin_memory()`) and copy with non_blocking=True"
    if loader.pin_memory:
        return "The loader already pins: create these tensors on the device, or give the batch a `pin_memory()` method"
    return "Set pin_memory=True, and copy with non_blocking=True"


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_PLACE = Frame("train.py", 41, "train")
_PAGEABLE = Causes(transfers=(Transfer(direction="to_device", place=_PLACE, count=20, num_bytes=1 << 30, seconds=0.2),))
_CONSTANT = Causes(
    num_steps=20, transfers=(Transfer(direction="to_device", place=_PLACE, count=20, seconds=0.2, repeats=18),)
)
_PINNED = Causes(transfers=(Transfer(direction="to_device", place=_PLACE, count=20, seconds=0.2, pinned=True),))

RULE = Rule(
    code="TR001",
    name="pageable-copy",
    check=check,
    settings={
        "transformers": "`TrainingArguments(dataloader_pin_memory=True)`",
    },
    fires_on=(
        example(step_ms=80, transfer=12, forward=60, environment=_GPU, causes=_PAGEABLE),
        example(step_ms=80, transfer=4.5, forward=60, environment=_GPU, causes=_PAGEABLE),
    ),
    quiet_on=(
        example(step_ms=80, transfer=3.9, forward=60, environment=_GPU, causes=_PAGEABLE),
        example(step_ms=80, transfer=12, forward=60, environment=_GPU, causes=_PINNED),
        example(step_ms=80, transfer=12, forward=60, environment=_GPU, causes=_CONSTANT),
        example(step_ms=80, transfer=12, forward=60, causes=_PAGEABLE),
    ),
)
