"""The device computes for less time than the host needs to start its many small kernels.

## What it measures

The kernels that the device ran in the few steps of the timeline, by torch's profiler in the deep run, against the time
that the host spends in forward, backward and optimizer in the timed run. It fires on CUDA devices when a step has at
least 100 kernels of at most 25 us on average, which take at most half of that time, and the rest is 10% of the step.

## Why it matters

Starting a kernel costs the host some microseconds, with all the Python around it; one that runs for less leaves the
device waiting for the next. A faster device changes nothing then.

## What to do

`model.compile()`, or `torch.compile(mode="reduce-overhead")`, which replays all launches at once where shapes stay the
same; larger batches; a fused or foreach optimizer; operations on whole tensors in place of loops over their parts.

## When it is wrong

Where the host is slow for a reason of its own (a busy machine, Python work inside the model), fewer kernels do not help
as much. What the profiler itself costs a launch is not in these times.
"""

from dataclasses import replace

from flatout.rules.bounds import speedup_without
from flatout.rules.example import example
from flatout.rules.rule import Rule
from flatout.rules.sentence import of_step
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, DeviceWork, Environment, Run
from flatout.units import format_ms

MIN_KERNELS = 100
MAX_KERNEL_S = 25e-6
MAX_BUSY = 0.5
MIN_SHARE = 0.10

_LAUNCHING = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO013: kernels take at most half of the time that it takes to start them."""
    work = run.causes.device_work if run.causes is not None and run.environment.device_kind == "cuda" else None
    if work is None or work.num_steps <= 0 or work.num_kernels < MIN_KERNELS * work.num_steps:
        return None
    kernels_s = work.seconds.get("kernel", 0.0)
    kernels_ms, each_s = kernels_s / work.num_steps * 1e3, kernels_s / work.num_kernels
    launching_ms = sum(map(breakdown.share, _LAUNCHING)) * breakdown.mean_ms
    if each_s > MAX_KERNEL_S or not 0 < kernels_ms <= MAX_BUSY * launching_ms:
        return None
    share = (launching_ms - kernels_ms) / breakdown.mean_ms
    if share < MIN_SHARE:
        return None
    number = work.num_kernels / work.num_steps
    return Finding(
        code="CO013",
        name="launch-bound",
        phase=max(_LAUNCHING, key=breakdown.share),
        share=share,
        max_speedup=speedup_without(share),
        message=f"{of_step(breakdown, launching_ms - kernels_ms)} goes to starting {number:.0f} kernels of "
        f"{format_ms(each_s * 1e3)} on average: the device computes for {format_ms(kernels_ms)}, the host takes "
        f"{format_ms(launching_ms)} for forward, backward and optimizer. Compile the model, or make batches larger.",
        evidence=(
            Evidence("kernels in a step", number, ""),
            Evidence("mean kernel", each_s * 1e3, "ms"),
            Evidence("device busy in the drawn steps", work.busy_s / work.wall_s if work.wall_s > 0 else 0.0, ""),
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
