"""Whole outputs are copied back from the device in the step.

## What it measures

`.cpu()`, `.to("cpu")` and `.tolist()` of device tensors in the steps of the deep run (the second, instrumented run),
by place. Before a copy of more than 256 KiB the deep run waits until the device has finished everything else, so that
only the copy is timed. It fires on CUDA devices when copies take at least 5% of the step and have at least that mean
size. CPU work in the same line (an `argmax` of the copied tensor) counts, too.

## Why it matters

The host waits for the copy, which also goes into pageable memory, and the device is idle meanwhile. Most of what is
copied back is reduced to one number right after.

## What to do

Reduce on the device, copy the result: `(logits.argmax(1) == y).sum()` in place of `logits.cpu()`. If the whole tensor
is needed, copy it with `non_blocking=True` into a pinned tensor and read it a step later, or do so every N steps.
`flatout tune` tries to keep outputs on the device for some steps and to copy them together.

## When it is wrong

Where the outputs are the purpose (embeddings that are stored), they have to be copied back; only the wait can be
avoided.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.transfers import seconds
from flatout.rules.facts.user_lines import costs
from flatout.rules.facts.user_lines import seconds as line_seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Frame, Run, Transfer
from flatout.units import format_bytes

MIN_SHARE = 0.05
MIN_BYTES = 1 << 18


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """TR005: copies of large tensors to the host take a twentieth of the step."""
    if run.causes is None or run.environment.device_kind != "cuda" or run.causes.num_steps <= 0:
        return None
    large = [copy for copy in run.causes.transfers if copy.direction == "to_host" and _mean_bytes(copy) >= MIN_BYTES]
    ms = min(seconds(large) / run.causes.num_steps * 1000, breakdown.ms(Phase.SYNC))
    share = ms / breakdown.mean_ms if breakdown.mean_ms > 0 else 0.0
    if share < MIN_SHARE:
        return None
    worst = max(large, key=lambda copy: copy.seconds)
    reduced = breakdown.share(Phase.HOST) * _in_that_line(run, worst.place)
    and_work = f"; {of_step(breakdown, reduced * breakdown.mean_ms)} is host work in that line" if reduced else ""
    share += reduced
    return Finding(
        code="TR005",
        name="outputs-copied-back",
        phase=Phase.SYNC,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, ms)} is spent copying tensors of {format_bytes(_mean_bytes(worst))} from the "
        f"device to the host{f', in {at(worst.place)}' if worst.place else ''}, not counting the wait for their values"
        f"{and_work}. Reduce them on the device, and copy the result.",
        evidence=(
            Evidence("copies seen", sum(copy.count for copy in large), ""),
            Evidence("copied", sum(copy.num_bytes for copy in large), "bytes"),
        ),
        fixes=(),
    )


def _in_that_line(run: Run, place: Frame | None) -> float:
    """Return the share of the host's own time that is spent in a line."""
    if place is None:
        return 0.0
    at_place = costs(run, Phase.HOST, keep=lambda cost: cost.stack[:1] == (place,))
    return line_seconds(at_place) / max(1e-12, line_seconds(costs(run, Phase.HOST)))


def _mean_bytes(copy: Transfer) -> float:
    return copy.num_bytes / max(1, copy.count)


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_LOGITS = Transfer(
    direction="to_host",
    place=Frame("train.py", 60, "train"),
    count=40,
    num_bytes=40 << 24,
    seconds=0.4,
    dtype="float32",
)
_ARGMAX = (
    line(1.8, ("train.py", 60, "train"), phase=Phase.HOST, part="tail", leaf="torch"),
    line(0.2, ("train.py", 61, "train"), phase=Phase.HOST, part="tail"),
)


def _with(copy: Transfer) -> Causes:
    return Causes(num_steps=40, transfers=(copy,))


RULE = Rule(
    code="TR005",
    name="outputs-copied-back",
    check=check,
    edits=(("read-later",),),
    subsumes=("sync-on-critical-path", "python-work-in-step"),
    fires_on=(
        example(step_ms=80, sync=20, forward=40, environment=_GPU, causes=_with(_LOGITS)),
        example(step_ms=80, sync=4.2, forward=40, environment=_GPU, causes=_with(_LOGITS)),
        example(step_ms=120, sync=20, forward=40, environment=_GPU, causes=replace(_with(_LOGITS), lines=_ARGMAX)),
    ),
    quiet_on=(
        example(step_ms=80, sync=3.9, forward=40, environment=_GPU, causes=_with(_LOGITS)),
        example(step_ms=80, sync=20, environment=_GPU, causes=_with(replace(_LOGITS, num_bytes=40 << 10))),
        example(step_ms=80, sync=20, environment=_GPU, causes=_with(replace(_LOGITS, seconds=0.1))),
        example(step_ms=80, sync=20, environment=_GPU, causes=_with(replace(_LOGITS, direction="to_device"))),
        example(step_ms=80, sync=20, causes=_with(_LOGITS)),
    ),
)
