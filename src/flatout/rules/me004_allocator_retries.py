"""The allocator of device memory runs out again and again, and returns all cached memory to the driver to go on.

## What it measures

`num_alloc_retries` of torch's CUDA allocator, after the first step and at the end of the timed run. It fires from three
retries on, if that is at least one in fifty steps.

## Why it matters

A retry waits for the device, returns all cached memory and asks for it again. The step in which that happens takes
many times as long, and the next request may fail for good.

## What to do

Use a little less memory: a slightly smaller batch, `zero_grad(set_to_none=True)`, no kept outputs. Where much more is
reserved than allocated, memory is fragmented by sizes that change all the time: use `expandable_segments:True`, or
round sizes up to a few.

## When it is wrong

Another process on the same device may have taken the memory for a while.
"""

from dataclasses import replace

from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import DeviceMemory, Environment, Run
from flatout.units import format_bytes, format_share

MIN_RETRIES = 3
MIN_PER_STEP = 1 / 50
FRAGMENTED = 1.3  # reserved against allocated memory


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """ME004: three retries, and one in fifty steps."""
    memory = run.device_memory
    if memory is None or run.num_steps <= 0:
        return None
    if memory.retries < MIN_RETRIES or memory.retries < MIN_PER_STEP * run.num_steps:
        return None
    in_pieces = memory.reserved_bytes > FRAGMENTED * memory.allocated_bytes > 0
    why = f"although at most {format_bytes(memory.allocated_bytes)} were in use" if in_pieces else "and most was in use"
    do = "Set expandable_segments:True" if in_pieces else "Use a little less memory: a smaller batch"
    reserved = format_share(memory.reserved_bytes / memory.total_bytes) if memory.total_bytes > 0 else "much"
    return Finding(
        code="ME004",
        name="allocator-retries",
        phase=Phase.OTHER,
        share=0.0,
        max_speedup=1.0,
        message=f"Device memory ran out {memory.retries} times (n={run.num_steps} steps), and all cached memory "
        f"was returned to the driver: {reserved} of the device was reserved, {why}. {do}.",
        evidence=(
            Evidence("retries", memory.retries, ""),
            Evidence("most allocated", memory.allocated_bytes, "bytes"),
            Evidence("most reserved", memory.reserved_bytes, "bytes"),
            Evidence("device memory", memory.total_bytes, "bytes"),
        ),
        fixes=("allocator",),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_FULL = DeviceMemory(retries=5, total_bytes=80 << 30, allocated_bytes=77 << 30, reserved_bytes=79 << 30)

RULE = Rule(
    code="ME004",
    name="allocator-retries",
    check=check,
    fires_on=(
        example(step_ms=100, forward=50, environment=_GPU, device_memory=_FULL),
        example(step_ms=100, forward=50, environment=_GPU, device_memory=replace(_FULL, allocated_bytes=50 << 30)),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, environment=_GPU, device_memory=replace(_FULL, retries=2)),
        example(step_ms=100, forward=50, environment=_GPU, device_memory=_FULL, n=300),
        example(step_ms=100, forward=50, environment=_GPU),
    ),
)
