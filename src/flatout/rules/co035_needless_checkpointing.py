"""The backward pass computes activations again that there is memory for.

## What it measures

In the deep run, the time of what `torch.utils.checkpoint` computes again in the backward pass, as a share of the step.
It fires at 10%, where at least half of the device's memory is free, or of the machine's for training on the CPU.

## Why it matters

Activation checkpointing trades time for memory: each block is computed twice, so a forward pass is added to each step.
Configurations are copied from models that need it (`gradient_checkpointing=True`, `use_checkpoint=True`) to those that
fit without.

## What to do

Switch it off, or apply it to fewer blocks. `flatout tune` tries `kept-activations`.

## When it is wrong

Where batches or models are to become larger, or where the peak comes later than what was recorded: a longest sequence,
an evaluation. On a device, time is that of the host: of kernels that it does not wait for, little is seen.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.schema.backward import Recomputed
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, DeviceMemory, Environment, Frame, Run
from flatout.units import format_share

MIN_SHARE = 0.10
LEAST_FREE = 0.5


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO035: a tenth of the step is computed again, with half of the memory free."""
    found = [each for each in (run.causes or Causes()).recomputed if each.steps]
    if not found or breakdown.mean_ms <= 0:
        return None
    again_ms = sum(1000 * each.seconds / each.steps for each in found)
    share, free = min(1.0, again_ms / breakdown.mean_ms), _free(run, found[0])
    if share < MIN_SHARE or free < LEAST_FREE:
        return None
    worst = found[0]
    where = f", most of it for {at(worst.place)}" if worst.place else ""
    return Finding(
        code="CO035",
        name="needless-checkpointing",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} computes activations a second time, in the backward "
        f"pass{where}: they are checkpointed, while {format_share(free)} of the memory is free. Keep them.",
        evidence=(
            Evidence("computed again in a step", sum(each.calls / each.steps for each in found), ""),
            Evidence("of the memory, free", free, ""),
        ),
        fixes=("kept-activations",),
    )


def _free(run: Run, found: Recomputed) -> float:
    memory = run.device_memory
    if memory is not None and memory.total_bytes > 0:
        return 1 - memory.allocated_bytes / memory.total_bytes
    return found.free_bytes / found.total_bytes if found.total_bytes else 0.0


_UNET = Recomputed(
    place=Frame("unet.py", 37, "Block.forward"), calls=900, steps=100, seconds=1.2, free_bytes=6 << 30,
    total_bytes=8 << 30,
)  # fmt: skip


def _with(*found: Recomputed) -> Causes:
    return Causes(num_steps=100, recomputed=found)


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)

RULE = Rule(
    code="CO035",
    name="needless-checkpointing",
    check=check,
    fires_on=(
        example(step_ms=50, forward=14, backward=34, causes=_with(_UNET)),
        example(
            step_ms=50, forward=14, backward=34, causes=_with(replace(_UNET, free_bytes=0)), environment=_GPU,
            device_memory=DeviceMemory(total_bytes=80 << 30, allocated_bytes=9 << 30),
        ),
    ),
    quiet_on=(
        example(step_ms=50, forward=14, backward=34, causes=_with()),
        example(step_ms=50, forward=14, backward=34, causes=_with(replace(_UNET, seconds=0.3))),
        example(step_ms=50, forward=14, backward=34, causes=_with(replace(_UNET, free_bytes=1 << 30))),
        example(
            step_ms=50, forward=14, backward=34, causes=_with(_UNET), environment=_GPU,
            device_memory=DeviceMemory(total_bytes=80 << 30, allocated_bytes=60 << 30),
        ),
    ),
)  # fmt: skip
