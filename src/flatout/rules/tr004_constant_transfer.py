"""The same tensor, unchanged, is copied to the device again in every step.

## What it measures

For each place that copies to the device, whether the deep run (the second, instrumented run) saw the same tensor there
in the same or the previous step: the same memory, not written to since, with the same contents by checksum. It fires
on CUDA devices when nine of ten copies at a place are such repetitions, at about one in each step, and they take at
least 2% of the step. Where kernel times were measured, at most the difference between step and kernel time counts.

## Why it matters

A copy from pageable memory makes the host wait, however small it is; and what does not change needs to be copied only
once. On an H200 a step that copies four constant masks took 18.3 ms, and 10.8 with them on the device: 1.69 times as
fast (1.65 to 1.72, n=3 rounds, 2026-11-26; `benchmarks/gpu_faults.py`). The rule did not find that fault in this
recording. It was corrected afterwards; the correction has not run on a GPU yet.

## What to do

Copy it before the loop, or make it a buffer of the module (`register_buffer`), which moves with `.to(device)`. Create
constant tensors on the device: `torch.arange(n, device=x.device)`. `flatout tune` tries `kept-copies`.

## When it is wrong

If a tensor is too large to keep on the device (an embedding table of which only a few rows are needed), index it on
the host first.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.transfers import copies, is_repeated, lost, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Frame, Run, Transfer
from flatout.units import format_bytes

MIN_SHARE = 0.02


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """TR004: copies of unchanged tensors take 2% of the step."""
    every, steps = copies(run), run.causes.num_steps if run.causes else 0
    same = [copy for copy in every if is_repeated(copy, steps)]
    if not same or seconds(every) <= 0:
        return None
    share = lost(run, breakdown, seconds(same))
    if share < MIN_SHARE:
        return None
    worst = max(same, key=lambda copy: copy.seconds)
    count, num_bytes = sum(copy.count for copy in same), sum(copy.num_bytes for copy in same)
    return Finding(
        code="TR004",
        name="constant-transfer",
        phase=Phase.TRANSFER,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent copying the same tensor to the device again "
        f"({format_bytes(num_bytes / max(1, count))}, unchanged in {worst.repeats} of {worst.count} copies) in "
        f"{at(worst.place)}. Copy it once, before the loop.",
        evidence=(
            Evidence("copies seen", count, ""),
            Evidence("of the same tensor, unchanged", sum(copy.repeats for copy in same), ""),
            Evidence("copied", num_bytes, "bytes"),
        ),
        fixes=("kept-copies",),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_MASK = Transfer(
    direction="to_device",
    place=Frame("model.py", 33, "Net.forward"),
    count=40,
    num_bytes=40 << 22,
    seconds=0.1,
    dtype="float32",
    repeats=38,
)
_BATCH = Transfer(direction="to_device", place=Frame("train.py", 41, "train"), count=40, seconds=0.3, dtype="float32")


def _with(*seen: Transfer) -> Causes:
    return Causes(num_steps=40, transfers=seen)


RULE = Rule(
    code="TR004",
    name="constant-transfer",
    check=check,
    fires_on=(
        example(step_ms=80, transfer=12, forward=60, environment=_GPU, causes=_with(_MASK, _BATCH)),
        example(step_ms=80, transfer=2, forward=60, environment=_GPU, causes=_with(_MASK)),
    ),
    quiet_on=(
        example(step_ms=80, transfer=1.5, forward=60, environment=_GPU, causes=_with(_MASK)),
        example(step_ms=80, transfer=12, environment=_GPU, causes=_with(_BATCH)),
        example(step_ms=80, transfer=12, environment=_GPU, causes=_with(replace(_MASK, repeats=20))),
        example(step_ms=80, transfer=12, environment=_GPU, causes=_with(replace(_MASK, count=8, repeats=7))),
        example(step_ms=80, transfer=12, causes=_with(_MASK)),
    ),
)
