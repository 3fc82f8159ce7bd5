"""The loop itself waits for the device or empties the allocator's cache.

## What it measures

Calls of `torch.cuda.synchronize()` and `torch.cuda.empty_cache()` in the deep run (the second, instrumented run), by
place, where they occur at least once in two steps. Time in `synchronize` counts only as far as the device is idle in
the step; `empty_cache` counts for the whole duration of the call. It fires when they take at least 3% of the step and
the device's time was measured.

## Why it matters

Kernel launches run ahead of the device, and waiting loses that lead. `empty_cache` waits, too, and returns all free
memory to the driver; the next step has to allocate it again, which is slow.

## What to do

Remove both from the loop. To time something, use events (`torch.cuda.Event(enable_timing=True)`) and read them later.
For fragmented memory, `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

## When it is wrong

Where memory is shared with another process or another framework, returning it may be what lets that one run. The cost
of the allocations that follow is not counted.
"""

from collections.abc import Sequence

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.device_waits import idle_ms
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Frame, Run, SyncPoint

MIN_SHARE = 0.03
MIN_PER_STEP = 0.5
WAIT, GIVE_BACK = "torch.cuda.synchronize", "torch.cuda.empty_cache"


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """SY002: synchronize and empty_cache in the loop take 3% of the step."""
    steps = run.causes.num_steps if run.causes else 0
    idle = idle_ms(run, breakdown)
    if run.environment.device_kind != "cuda" or run.causes is None or steps <= 0 or idle is None:
        return None
    called = [one for one in run.causes.syncs if one.operation in (WAIT, GIVE_BACK) and one.place]
    often = [one for one in called if one.count >= MIN_PER_STEP * steps]
    if not often or breakdown.mean_ms <= 0:
        return None
    waited = min(breakdown.ms(Phase.SYNC), _ms(often, WAIT, steps), idle)
    lost = min(breakdown.mean_ms, waited + _ms(often, GIVE_BACK, steps))
    share = lost / breakdown.mean_ms
    if share < MIN_SHARE:
        return None
    worst = max(often, key=lambda one: one.seconds)
    names = " and ".join(sorted({f"{one.operation}()" for one in often}))
    return Finding(
        code="SY002",
        name="explicit-synchronize",
        phase=Phase.SYNC,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, lost)} is spent in {names}, called in the loop in {at(worst.place)}. Remove it.",
        evidence=(
            Evidence("calls in a step", sum(one.count for one in often) / steps, ""),
            Evidence("device idle", idle, "ms"),
            Evidence("longest on average", worst.seconds / max(1, worst.count) * 1000, "ms"),
        ),
        fixes=(),
    )


def _ms(calls: Sequence[SyncPoint], operation: str, steps: int) -> float:
    """Return the milliseconds of a step that calls of one operation take."""
    return sum(max(0.0, one.seconds) for one in calls if one.operation == operation) / steps * 1000


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_AT = Frame("train.py", 52, "train")
_IDLE, _BUSY = (20_000_000, 40_000_000, 2_000_000), (30_000_000, 67_000_000, 2_500_000)


def _calling(operation: str, count: int = 60, ms: float = 8.0, place: Frame | None = _AT) -> Causes:
    seen = SyncPoint(operation=operation, place=place, count=count, seconds=count * ms / 1000)
    return Causes(num_steps=60, syncs=(seen,))


RULE = Rule(
    code="SY002",
    name="explicit-synchronize",
    check=check,
    subsumes=("sync-on-critical-path",),
    edits=(("remove-call", "torch.cuda.synchronize", "torch.cuda.empty_cache"),),
    fires_on=(
        example(step_ms=100, sync=8, environment=_GPU, causes=_calling(WAIT), device_ns=_IDLE),
        example(step_ms=100, forward=50, environment=_GPU, causes=_calling(GIVE_BACK), device_ns=_BUSY),
    ),
    quiet_on=(
        example(step_ms=100, sync=8, environment=_GPU, causes=_calling(WAIT), device_ns=_BUSY),
        example(step_ms=100, sync=8, environment=_GPU, causes=_calling(WAIT, count=2), device_ns=_IDLE),
        example(step_ms=100, sync=8, environment=_GPU, causes=_calling("item"), device_ns=_IDLE),
        example(step_ms=100, sync=8, environment=_GPU, causes=_calling(WAIT)),
        example(step_ms=100, forward=8, causes=_calling(GIVE_BACK), device_ns=_IDLE),
        example(step_ms=100, forward=50, environment=_GPU, causes=_calling(GIVE_BACK, ms=2.9), device_ns=_IDLE),
    ),
)
