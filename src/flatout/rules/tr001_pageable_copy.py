"""Batches are copied to the device from ordinary, pageable memory.

## What it measures

The copies from host to device that the deep run saw, by place, and whether their source was pinned. It fires on CUDA
devices when pageable copies take at least 5% of the step. The same tensor again and again is for TR004. No more counts
than the step is longer than its kernels, where these were measured.

## Why it matters

The driver copies a pageable tensor into a pinned buffer of its own first, and the call returns only after that:
slower, and never overlapped with computation.

## What to do

`DataLoader(..., pin_memory=True)` and `.to(device, non_blocking=True)`; a batch of a class of your own needs a
`pin_memory()` method for it. What does not come from a loader, make on the device.

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
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} copies to the device from pageable memory "
        f"({format_bytes(num_bytes / max(1, count))} a copy). {_cure(run)}.",
        evidence=(Evidence("copies seen", count, ""), Evidence("copied", num_bytes, "bytes")),
        fixes=("pinned-copy", "device-prefetch", "device-resident-input"),
    )


def _cure(run: Run) -> str:
    """Return what pins the source: where a loader does already, or there is none, pin_memory=True changes nothing."""
    loader = training_loader(run)
    if loader is None:
        return "Make these tensors on the device, or pin them (`.pin_memory()`) and copy with non_blocking=True"
    if loader.pin_memory:
        return "The loader pins already: make these tensors on the device, or give the batch a `pin_memory()` method"
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
