"""One process feeds several devices through DataParallel, which copies the model to all of them in every step.

## What it measures

Whether the outermost module is `torch.nn.DataParallel` over more than one device, and the kernel time of all devices in
the few steps of the timeline (torch's profiler, deep run). That time, spread evenly over the devices, is the least that
a step can take. It fires when forward, backward, optimizer and waiting take longer by at least 10% of the step.

## Why it matters

Each step copies all weights to every device, gathers all outputs on the first one, and launches the kernels of all
devices from threads that share one interpreter, one at a time. The first device holds more than the others, and does
the optimizer's step for all.

## What to do

`flatout tune --nproc-per-node gpu` trains the script as it is with one process per device, each with its rows of the
script's batch, and compares results and speed with one process. By hand: `DistributedDataParallel` under `torchrun`;
the data set then needs a `DistributedSampler`, and the batch size is that of one process.

## When it is wrong

The bound does not include what DistributedDataParallel itself exchanges. Batch normalization sees each device's part by
itself under both: nothing changes there.
"""

from dataclasses import replace
from typing import Any

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.launches import launches
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, DeviceWork, Environment, ModelFacts, Run
from flatout.units import format_ms

MIN_SHARE = 0.10


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO018: a tenth of the step is more than the kernels would take, evenly spread over the devices."""
    replicas = max((model.replicas for model in run.models), default=1)
    found = launches(run, breakdown)
    if replicas < 2 or found is None or found.kernels_ms <= 0:
        return None
    computing_ms = found.host_ms + breakdown.ms(Phase.SYNC)
    least_ms = found.kernels_ms / replicas
    share = (computing_ms - least_ms) / breakdown.mean_ms
    if share < MIN_SHARE:
        return None
    return Finding(
        code="CO018",
        name="one-process-many-devices",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        message=f"DataParallel feeds {replicas} devices from one process, and "
        f"{of_step(breakdown, computing_ms - least_ms)} is more than their kernels need: {format_ms(found.kernels_ms)} "
        f"of kernels on all of them together, {format_ms(least_ms)} if spread evenly. Use DistributedDataParallel, "
        "with a process for each device.",
        evidence=(
            Evidence("devices", replicas, ""),
            Evidence("kernels of all devices", found.kernels_ms, "ms"),
            Evidence("forward, backward, optimizer, waiting", computing_ms, "ms"),
        ),
        fixes=(),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=4)
_MODEL = ModelFacts(name="DataParallel", num_parameters=62, replicas=4)
_WORK = DeviceWork(num_steps=8, wall_s=0.8, busy_s=0.4, num_kernels=8 * 2000, seconds={"kernel": 1.0})
_STEP: dict[str, Any] = {"forward": 50, "backward": 25, "sync": 10, "environment": _GPU}


def _with(work: DeviceWork | None) -> Causes:
    return Causes(num_steps=40, device_work=work)


RULE = Rule(
    code="CO018",
    name="one-process-many-devices",
    check=check,
    preview=True,
    fires_on=(
        example(step_ms=100, **_STEP, models=(_MODEL,), causes=_with(_WORK)),
        example(step_ms=100, input=60, forward=20, backward=15, environment=_GPU, models=(_MODEL,),
                causes=_with(replace(_WORK, seconds={"kernel": 0.6}))),
    ),
    quiet_on=(
        example(step_ms=100, **_STEP, models=(replace(_MODEL, replicas=1),), causes=_with(_WORK)),
        example(step_ms=100, **_STEP, models=(_MODEL,), causes=_with(replace(_WORK, seconds={"kernel": 2.5}))),
        example(step_ms=100, **_STEP, models=(_MODEL,), causes=_with(None)),
        example(step_ms=100, **_STEP, causes=_with(_WORK)),
    ),
    no_cure="No fix starts processes: `flatout tune --nproc-per-node gpu` does, with one for each device.",
)  # fmt: skip
