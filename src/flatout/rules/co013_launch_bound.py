"""The device computes for less time than the host needs to launch its many small kernels.

## What it measures

The kernels that the device ran in the few steps of the timeline (torch's profiler, deep run), compared with the host's
time for forward, backward and optimizer in the timed run. It fires on CUDA devices when a step has at least 100 kernels
of at most 25 us on average, these take at most half of that time, and the rest is at least 10% of the step. It stays
quiet where at least half of the steps search for convolution algorithms (CO016).

## Why it matters

Launching a kernel costs the host some microseconds, with all the Python around it; a kernel that runs for less leaves
the device waiting for the next one. A faster device changes nothing then.

## What to do

`model.compile()`, or `torch.compile(mode="reduce-overhead")`, which replays all launches at once where shapes stay the
same; larger batches; a fused or foreach optimizer; operations on whole tensors instead of loops over their parts.

## When it is wrong

Where the host is slow for another reason (a busy machine, Python work inside the model), fewer kernels help less. The
profiler's own cost for each launch is not included in these times.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.launches import LAUNCHING, launches
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.run import Causes, DeviceWork, Environment, Run
from flatout.units import format_ms


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO013: kernels take at most half of the time that it takes to start them."""
    found = launches(run, breakdown)
    if found is None or not (found.many_and_short and found.leave_idle):
        return None
    return Finding(
        code="CO013",
        name="launch-bound",
        phase=max(LAUNCHING, key=breakdown.share),
        share=found.share,
        max_speedup=speedup_without(found.share),
        message=f"{of_step(breakdown, found.host_ms - found.kernels_ms)} goes to launching {found.number:.0f} kernels "
        f"of {format_ms(found.each_s * 1e3)} on average: the device computes for {format_ms(found.kernels_ms)}, the "
        f"host takes {format_ms(found.host_ms)} for forward, backward and optimizer. Compile the model, or make "
        "batches larger.",
        evidence=(
            Evidence("kernels in a step", found.number, ""),
            Evidence("mean kernel", found.each_s * 1e3, "ms"),
            Evidence("device busy in the profiled steps", found.busy, ""),
        ),
        fixes=("compiled-module", "fused-optimizer", "larger-batch"),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_SMALL = DeviceWork(num_steps=8, wall_s=0.1, busy_s=0.03, num_kernels=8 * 800, seconds={"kernel": 0.026})


def _with(work: DeviceWork | None) -> Causes:
    return Causes(num_steps=40, device_work=work)


RULE = Rule(
    code="CO013",
    name="launch-bound",
    check=check,
    fires_on=(
        example(step_ms=12, forward=4, backward=5, optimizer=2, environment=_GPU, causes=_with(_SMALL)),
        example(step_ms=40, input=25, forward=5, backward=6, environment=_GPU, causes=_with(_SMALL)),
    ),
    quiet_on=(
        example(step_ms=12, forward=2, backward=3, sync=6, environment=_GPU, causes=_with(_SMALL)),
        example(step_ms=90, input=80, forward=4, backward=5, environment=_GPU, causes=_with(_SMALL)),
        example(
            step_ms=12, forward=4, backward=5, optimizer=2, environment=_GPU,
            causes=_with(replace(_SMALL, num_kernels=8 * 90)),
        ),
        example(
            step_ms=200, forward=80, backward=100, environment=_GPU,
            causes=_with(replace(_SMALL, num_kernels=8 * 800, seconds={"kernel": 0.5})),
        ),
        example(step_ms=12, forward=4, backward=5, environment=_GPU, causes=_with(None)),
        example(step_ms=12, forward=4, backward=5, causes=_with(_SMALL)),
    ),
)  # fmt: skip
