"""The device lowered its clock while the steps ran, because of heat or its power supply.

## What it measures

The driver's reason for a lower clock (NVML) in each sample of the device taken while steps ran: heat, or a slowdown by
hardware. It fires when such a reason was given in 10% of the samples and at least three of them.

## Why it matters

The same step takes longer on a hot device. Two measurements, one before and one after it became hot, differ without any
change of the code; and the training does not get the device's full speed.

## What to do

Check the temperature, the air that reaches the device, and what else runs in the same case. Measure for longer, so
that all figures are those of the warm device, or with clocks held at a lower value by the administrator.

## When it is wrong

A power cap is not counted: many devices run at theirs whenever they are busy. In the 13 recordings of H100s and H200s
that are kept here no sample shows a lowered clock (n=54 while steps ran; 1,980 MHz in each in which the device was busy
for more than half of the time).
"""

from flatout.analysis.statistics import median
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.facts.machine_facts import while_steps_ran
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, Run, Utilization
from flatout.units import format_share

MIN_SHARE = 0.10
MIN_LOOKS = 3
REASONS = ("thermal", "hardware slowdown")


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """MS004: at a tenth of the looks the clock was held down."""
    samples = while_steps_ran(run)
    slowed = [sample for sample in samples if any(reason in sample.gpu_throttled for reason in REASONS)]
    share = len(slowed) / len(samples) if samples else 0.0
    on_cpu = run.environment.device_kind == "cpu"  # then it is somebody else who heats the device
    if on_cpu or len(slowed) < MIN_LOOKS or share < MIN_SHARE:
        return None
    reasons = sorted({part for sample in slowed for part in sample.gpu_throttled.split(", ") if part != "power cap"})
    clocks = [sample.gpu_clock_mhz for sample in slowed if sample.gpu_clock_mhz > 0]
    highest = max((sample.gpu_clock_mhz for sample in samples), default=0.0)
    at = f", to {median(clocks):.0f} MHz where it reached {highest:.0f} MHz" if clocks else ""
    return Finding(
        code="MS004",
        name="throttled-clock",
        phase=Phase.OTHER,
        share=0.0,
        max_speedup=1.0,
        message=f"The device lowered its clock in {format_share(share)} of the samples (n={len(samples)}{at}): "
        f"{' and '.join(reasons)}. Take the figures as those of a hot device, and check its cooling.",
        evidence=(
            Evidence("share of the samples", share, ""),
            Evidence("highest clock", highest, "MHz"),
        ),
    )


def _looks(count: int, slowed: int, reason: str) -> tuple[Utilization, ...]:
    return tuple(
        Utilization(
            at_s=0.5 * i, gpu_clock_mhz=1200 if i < slowed else 1980, gpu_throttled=reason if i < slowed else ""
        )
        for i in range(count)
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda")

RULE = Rule(
    code="MS004",
    name="throttled-clock",
    check=check,
    preview=True,
    fires_on=(
        example(step_ms=100, forward=50, environment=_GPU, utilization=_looks(12, 12, "power cap, hardware thermal")),
        example(step_ms=100, forward=50, environment=_GPU, utilization=_looks(12, 3, "hardware slowdown")),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, environment=_GPU, utilization=_looks(12, 12, "power cap")),
        example(step_ms=100, forward=50, environment=_GPU, utilization=_looks(12, 2, "software thermal")),
        example(step_ms=100, forward=50, n=200, environment=_GPU, utilization=_looks(40, 3, "software thermal")),
        example(step_ms=100, forward=50, utilization=_looks(12, 12, "hardware thermal")),
        example(step_ms=100, forward=50),
    ),
    no_cure="It is about the machine, not the script: its cooling, or its power limit.",
)
