"""Autograd's anomaly detection is on, and every backward pass pays for it.

## What it measures

The deep run times forward and backward with detection on and off, in alternating blocks of steps. It fires when the
difference is at least 3% of the step.

## Why it matters

In the forward pass a Python traceback is recorded for each operation, and in the backward pass every gradient is
searched for NaN. Left on, it made an epoch take 45 instead of 30 s (motion-diffusion#81); small operations suffer most.

## What to do

Remove `torch.autograd.set_detect_anomaly(True)` (or `with detect_anomaly()`), and switch it on only while looking for
a NaN.

## When it is wrong

While you are looking for a NaN, you need it.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, ModelFacts, Run

MIN_SHARE = 0.03


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO003: anomaly detection is on and costs 3% of the step."""
    watched = [model for model in run.models if model.anomaly_steps > 0]
    if not watched:
        return None
    model = max(watched, key=lambda model: model.anomaly_share)
    computing = breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD)
    share = min(1.0, max(0.0, model.anomaly_share)) * computing
    if share < MIN_SHARE:
        return None
    return Finding(
        code="CO003",
        name="anomaly-detection",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=model.anomaly_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to autograd's anomaly detection, measured with "
        f"it on and off ({model.anomaly_steps} steps each). Remove set_detect_anomaly(True).",
        evidence=(
            Evidence("share of forward and backward", model.anomaly_share, ""),
            Evidence("steps with it, and without", model.anomaly_steps, ""),
        ),
        fixes=(),
    )


_AT = Frame("train.py", 5, "<module>")
_ON = ModelFacts(name="Net", anomaly_share=0.33, anomaly_steps=10, anomaly_at=_AT)
_CHEAP = ModelFacts(name="Net", anomaly_share=0.03, anomaly_steps=10, anomaly_at=_AT)

RULE = Rule(
    code="CO003",
    name="anomaly-detection",
    check=check,
    settings={
        "lightning": "`Trainer(detect_anomaly=False)`",
    },
    edits=(("anomaly-detection-off",),),
    fires_on=(
        example(step_ms=100, forward=30, backward=60, models=(_ON,)),
        example(step_ms=100, input=80, forward=5, backward=10, models=(_ON,)),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, models=(_CHEAP,)),
        example(step_ms=100, forward=30, backward=60, models=(ModelFacts(name="Net"),)),
    ),
)
