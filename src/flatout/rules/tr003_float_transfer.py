"""Batches are copied to the device as floating-point numbers, although each of their values is a byte.

## What it measures

The deep run (the second, instrumented run) looks at a few of the copies to the device at each place, those of at least
65,536 floating-point numbers: do at most 256 evenly spaced values occur in each channel? Then each value is a scaled
and shifted byte (`ToTensor`, `Normalize`), and a byte would do. It fires on CUDA devices when three quarters of the
time in these copies (for float32) are at least 5% of the step. Where kernel times were measured, at most the
difference between step and kernel time counts.

## Why it matters

A float32 is four times as large as the byte it was made from: the copy is four times as large, as is the memory for
workers, pinning and batches, and the CPU does the scaling.

## What to do

Keep images as uint8 in data set and loader (`torchvision.io`, `PILToTensor`), copy, then scale on the device: `x =
(x.float() / 255 - mean) / std`.

## When it is wrong

Only three batches are examined at each place: a later one may hold other values. Copies that overlap with computation
take no time of the step, and are not reported.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.transfers import copies, lost, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Frame, Run, Transfer
from flatout.units import format_bytes

MIN_SHARE = 0.05
MIN_LOOKED = 3
ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """TR003: copying bytes as floating-point numbers costs a twentieth of the step more than needed."""
    every = copies(run)
    wide = [copy for copy in every if _is_wide(copy)]
    if not wide or seconds(every) <= 0:
        return None
    saved_s = sum(max(0.0, copy.seconds) * (1 - 1 / ITEM_BYTES[copy.dtype]) for copy in wide)
    share = lost(run, breakdown, saved_s)
    if share < MIN_SHARE:
        return None
    worst = max(wide, key=lambda copy: copy.seconds)
    count, num_bytes = sum(copy.count for copy in wide), sum(copy.num_bytes for copy in wide)
    return Finding(
        code="TR003",
        name="float-transfer",
        phase=Phase.TRANSFER,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent copying {worst.dtype} in place of uint8: "
        f"the values of these batches ({format_bytes(num_bytes / max(1, count))} each) are bytes, at most 256 evenly "
        "spaced ones in a channel. Copy uint8, and scale on the device.",
        evidence=(
            Evidence("copies seen", count, ""),
            Evidence("copied", num_bytes, "bytes"),
            Evidence("batches looked at", sum(copy.looked for copy in wide), ""),
        ),
        fixes=("device-resident-input", "compiled-input"),
    )


def _is_wide(copy: Transfer) -> bool:
    return copy.dtype in ITEM_BYTES and copy.looked >= MIN_LOOKED and copy.as_bytes == copy.looked


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_IMAGES = Transfer(
    direction="to_device",
    place=Frame("train.py", 41, "train"),
    count=20,
    num_bytes=20 * 38_535_168,
    seconds=0.2,
    dtype="float32",
    looked=3,
    as_bytes=3,
)
_LABELS = Transfer(direction="to_device", place=Frame("train.py", 41, "train"), count=20, seconds=0.002, dtype="int64")


def _with(*seen: Transfer) -> Causes:
    return Causes(num_steps=20, transfers=seen)


RULE = Rule(
    code="TR003",
    name="float-transfer",
    check=check,
    fires_on=(
        example(step_ms=80, transfer=12, forward=60, environment=_GPU, causes=_with(_IMAGES, _LABELS)),
        example(step_ms=80, transfer=5.6, environment=_GPU, causes=_with(_IMAGES)),
    ),
    quiet_on=(
        example(step_ms=80, transfer=5.0, forward=60, environment=_GPU, causes=_with(_IMAGES)),
        example(step_ms=80, transfer=12, environment=_GPU, causes=_with(replace(_IMAGES, as_bytes=2))),
        example(step_ms=80, transfer=12, environment=_GPU, causes=_with(replace(_IMAGES, looked=0, as_bytes=0))),
        example(step_ms=80, transfer=12, environment=_GPU, causes=_with(replace(_IMAGES, dtype="uint8"))),
        example(step_ms=80, transfer=12, causes=_with(_IMAGES)),
    ),
)
