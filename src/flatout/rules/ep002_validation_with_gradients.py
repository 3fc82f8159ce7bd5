"""Validation records the graph that only a backward pass would need.

## What it measures

Validation passes whose forward passes ran with gradients switched on. It fires when they take at least 2% of the
recording without start-up. The gain is an estimate: at most 25% of that time.

## Why it matters

Every operation then creates a node of the graph and keeps its inputs alive: more time a pass, and memory as in
training. Measured on one CPU core (n=40): the forward pass of a small MLP took 16% less without gradients, a CNN 23%,
a residual network 16%, an LSTM 7%. Loading and metrics, which validation also does, gain nothing.

## What to do

`with torch.no_grad():` around the validation loop, or `@torch.no_grad()` on its function. `model.eval()` does not do
that: it only changes dropout and normalization.

## When it is wrong

Validation that needs gradients (adversarial examples, physics losses, saliency) must keep them.
"""

from dataclasses import replace

from flatout.rules.bounds import speedup_without
from flatout.rules.example import example
from flatout.rules.rule import Rule
from flatout.rules.sentence import of_loop
from flatout.rules.validation import passes, place
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Outside, Run

MIN_SHARE = 0.02
SAVED = 0.25  # the most that switching gradients off saved on four small models


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """EP002: validation with gradients takes a fiftieth of the loop."""
    found = [stretch for stretch in passes(run) if stretch.with_grad]
    spent_s = min(sum(stretch.wall_ns for stretch in found) / 1e9, breakdown.loop_s)
    share = breakdown.loop_share(spent_s)
    if not found or share < MIN_SHARE:
        return None
    return Finding(
        code="EP002",
        name="validation-with-gradients",
        phase=Phase.VALIDATION,
        share=share,
        max_speedup=speedup_without(SAVED * share),
        location=place(run),
        message=f"{of_loop(breakdown, spent_s, len(found))} is validation that records gradients. Put it under "
        "torch.no_grad(); that saves an estimated 5 to 25% of it, and memory.",
        evidence=(
            Evidence("one validation", spent_s / len(found), "s"),
            Evidence("share saved, at most, estimated", SAVED, ""),
        ),
        fixes=(),
    )


_LOADER = LoaderFacts(name="Pictures", iterated_at=Frame("train.py", 70, "evaluate"))
_PASS = Outside(phase=Phase.VALIDATION, start_ns=5_000_000_000, wall_ns=500_000_000, with_grad=True, num_batches=20)

RULE = Rule(
    code="EP002",
    name="validation-with-gradients",
    check=check,
    fires_on=(
        example(step_ms=50, n=100, forward=40, outside=(_PASS,), loaders=(_LOADER,)),
        example(step_ms=50, n=400, forward=40, outside=(_PASS,)),
    ),
    quiet_on=(
        example(step_ms=50, n=500, forward=40, outside=(_PASS,)),
        example(step_ms=50, n=100, forward=40, outside=(replace(_PASS, with_grad=False),), loaders=(_LOADER,)),
    ),
)
