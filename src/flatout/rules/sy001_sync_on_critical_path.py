"""The host waits for the device in the middle of the step, and the device then waits for the host.

## What it measures

Time in operations that wait for the device (`.item()`, `.cpu()`, `print` of a tensor, `nonzero`), unless the model is
on the CPU. Where device time was measured, a wait counts only as far as the device is idle in the step: a step of 100
ms with 97 ms of device work can gain at most 3 ms, however long the host waits. It fires at 5% of the step. The place
is where the host waited longest.

## Why it matters

Kernel launches run ahead of the device. A wait loses that lead, and the device idles until the host has launched work
again. Often the wait costs nothing: `.item()` each step, 34.0 against 34.2 ms (gpu-idle's control).

## What to do

Keep sums and metrics on the device and read them every N steps: `total += loss.detach()`. Copy results with
`non_blocking=True` and look at them a step later. `flatout tune` tries to keep the values of a line such as
`total += loss.item()` and to read them together where the total is used; sums of floats come out the same. A value that
only the body of one `if` uses is read there.

## When it is wrong

Control flow that depends on the value (stopping on NaN) needs the wait. Without device time the rule cannot tell a
wait that costs from one that does not, and says so.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.device_waits import device_ms
from flatout.rules.facts.user_lines import MIN_SAMPLES, costs, hottest
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Frame, Run, SyncPoint

MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """SY001: waiting for the device leaves it idle for a twentieth of the step."""
    waited_ms = breakdown.ms(Phase.SYNC)
    if run.environment.device_kind == "cpu" or breakdown.mean_ms <= 0:
        return None
    busy_ms = device_ms(run, breakdown)
    lost_ms = waited_ms if busy_ms is None else min(waited_ms, max(0.0, breakdown.mean_ms - busy_ms))
    share = lost_ms / breakdown.mean_ms
    if share < MIN_SHARE:
        return None
    place = _place(run)
    doubt = " Device time was not measured: part of the wait may cost nothing." if busy_ms is None else ""
    return Finding(
        code="SY001",
        name="sync-on-critical-path",
        phase=Phase.SYNC,
        share=share,
        max_speedup=speedup_without(share),
        location=place,
        message=f"{of_step(breakdown, lost_ms)} is lost because the host waits for the device"
        f"{f', mostly in {at(place)}' if place else ''}. Keep values on the device and read them every N steps.{doubt}",
        evidence=(
            Evidence("waited", waited_ms, "ms"),
            *((Evidence("device busy", busy_ms, "ms"),) if busy_ms is not None else ()),
            Evidence("waits seen", sum(sync.count for sync in run.causes.syncs) if run.causes else 0, ""),
        ),
        fixes=(),
    )


def _place(run: Run) -> Frame | None:
    """Return where the host waited longest."""
    syncs = [sync for sync in (run.causes.syncs if run.causes else ()) if sync.place]
    if syncs and max(sync.count for sync in syncs) >= MIN_SAMPLES:
        return max(syncs, key=lambda sync: sync.seconds).place
    lines = costs(run, Phase.SYNC)
    spot = hottest(lines, among=lines)
    return spot.place if spot else None


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_SEEN = Causes(syncs=(SyncPoint(operation="item", place=Frame("train.py", 52, "train"), count=40, seconds=1.1),))
_IDLE, _BUSY = (20_000_000, 40_000_000, 2_000_000), (30_000_000, 65_000_000, 2_500_000)

RULE = Rule(
    code="SY001",
    name="sync-on-critical-path",
    check=check,
    edits=(("read-later",), ("seldom-work",), ("builtin-sum",), ("log-level",)),
    settings={
        "lightning": "`self.log` of tensors instead of `.item()`",
        "accelerate": "`accelerator.gather_for_metrics` every N steps, not in each",
    },
    fires_on=(
        example(step_ms=100, sync=25, forward=50, environment=_GPU, causes=_SEEN, device_ns=_IDLE),
        example(step_ms=100, sync=8, forward=50, environment=_GPU, causes=_SEEN),
        example(step_ms=100, sync=8, environment=_GPU, lines=[line(0.5, ("train.py", 52, "train"), phase=Phase.SYNC)]),
    ),
    quiet_on=(
        example(step_ms=100, sync=4.9, forward=50, environment=_GPU, causes=_SEEN, device_ns=_IDLE),
        example(step_ms=100, sync=60, forward=20, environment=_GPU, causes=_SEEN, device_ns=_BUSY),
        example(step_ms=100, sync=25, forward=50, causes=_SEEN),
    ),
)
