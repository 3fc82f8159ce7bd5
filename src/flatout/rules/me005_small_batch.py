"""Batches are so small that the device waits for the host, and most of its memory is empty.

## What it measures

The kernel time in the few steps of the timeline (torch's profiler, deep run), compared with the host's time for
forward, backward and optimizer; and the peak memory of tensors, compared with that of the device. It fires on CUDA
devices when kernels take at most half of the host's time, tensors at most half of the memory, and a larger batch would
train at least 10% more samples a second. Where kernels are many and short, CO013 is reported instead.

## Why it matters

The host's work in a step costs the same for any batch size: until the device is busy, twice the samples take the time
of one step. The bound is computed that way, for the batch at which kernels take as long as the host or tensors fill 80%
of the memory; input and transfer are taken to grow with the batch.

## What to do

Try batches twice and four times as large, with a matching learning rate, and compare the model's quality by number of
samples, not of steps. Where micro-batches are accumulated, merge them: that is the same training.

## When it is wrong

Another batch size is another training: fewer steps, and perhaps worse weights. Where each batch needs the weights that
the previous one produced (reinforcement learning, online learning), it is not possible.
"""

from dataclasses import replace
from typing import Any

from flatout.rules.core.bounds import MAX_SPEEDUP
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.facts.launches import launches
from flatout.rules.facts.loader_facts import samples_per_batch, training_loader
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, DeviceMemory, DeviceWork, Environment, LoaderFacts, Run
from flatout.units import format_ms, format_share

MAX_MEMORY = 0.5
FULL = 0.8
MIN_GAIN = 1.1


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """ME005: half of the device's memory and half of its time are left over."""
    found, memory = launches(run, breakdown), run.device_memory
    if found is None or found.many_and_short or not found.leave_idle:
        return None
    if memory is None or not 0 < memory.allocated_bytes <= MAX_MEMORY * memory.total_bytes:
        return None
    factor = min(FULL * memory.total_bytes / memory.allocated_bytes, found.host_ms / found.kernels_ms)
    input_ms = breakdown.ms(Phase.INPUT) + breakdown.ms(Phase.TRANSFER)  # of every sample
    gain = min(MAX_SPEEDUP, factor * breakdown.mean_ms / (breakdown.mean_ms + (factor - 1) * input_ms))
    samples = _batch(run)
    if gain < MIN_GAIN or samples <= 0:
        return None
    used = memory.allocated_bytes / memory.total_bytes
    return Finding(
        code="ME005",
        name="small-batch",
        phase=Phase.FORWARD,
        share=1 - 1 / gain,
        max_speedup=gain,
        message=f"Batches of {samples:.0f} samples fill {format_share(used)} of the device's memory and leave it idle: "
        f"kernels take {format_ms(found.kernels_ms)}, the host {format_ms(found.host_ms)} for launching them "
        f"(n={breakdown.measured}). Batches up to {factor:.1f} times as large would take "
        f"{format_ms(breakdown.mean_ms + (factor - 1) * input_ms)} a step instead of {format_ms(breakdown.mean_ms)}; "
        "that is another training, so compare its results.",
        evidence=(
            Evidence("kernels in a step", found.number, ""),
            Evidence("device busy in the profiled steps", found.busy, ""),
            Evidence("most allocated", memory.allocated_bytes, "bytes"),
            Evidence("device memory", memory.total_bytes, "bytes"),
        ),
        fixes=("larger-batch",),
    )


def _batch(run: Run) -> float:
    loader = training_loader(run)
    return (samples_per_batch(run, loader) if loader is not None else 0.0) or run.samples_per_step or 0.0


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_FEW = DeviceWork(num_steps=8, wall_s=0.02, busy_s=0.003, num_kernels=8 * 40, seconds={"kernel": 0.0024})
_LONG = DeviceWork(num_steps=8, wall_s=0.2, busy_s=0.08, num_kernels=8 * 200, seconds={"kernel": 0.064})
_MEMORY = DeviceMemory(total_bytes=80 << 30, allocated_bytes=1 << 30, reserved_bytes=2 << 30)
_LOADER = LoaderFacts(is_training=True, batch_size=64)
_STEP: dict[str, Any] = {"forward": 0.8, "backward": 0.9, "optimizer": 0.5, "environment": _GPU, "loaders": (_LOADER,)}


def _with(work: DeviceWork) -> Causes:
    return Causes(num_steps=40, device_work=work)


RULE = Rule(
    code="ME005",
    name="small-batch",
    check=check,
    fires_on=(
        example(step_ms=2.5, **_STEP, causes=_with(_FEW), device_memory=_MEMORY),
        example(
            step_ms=25, forward=9, backward=11, environment=_GPU, causes=_with(_LONG), device_memory=_MEMORY,
            samples_per_step=16.0,
        ),
    ),
    quiet_on=(
        example(step_ms=2.5, **_STEP, causes=_with(_FEW), device_memory=replace(_MEMORY, allocated_bytes=41 << 30)),
        example(step_ms=2.5, **_STEP, causes=_with(_FEW)),
        example(step_ms=25, input=22.8, **_STEP, causes=_with(_FEW), device_memory=_MEMORY),
        example(
            step_ms=2.5, **_STEP, device_memory=_MEMORY, causes=_with(replace(_FEW, seconds={"kernel": 0.0096}))
        ),
        example(step_ms=2.5, **_STEP, device_memory=_MEMORY, causes=_with(replace(_FEW, num_kernels=8 * 400))),
    ),
)  # fmt: skip
