"""A norm, a variance or an argmax is taken over a dimension that torch is slow at on the CPU.

## What it measures

In one forward pass of the deep run, the time of `norm`, `var`, `std`, `argmax` and `argmin` over some dimensions, by
line, and its share of all operations of the pass. For each line, the longest such call is timed again by itself, and so
is an equivalent expression. The finding is shown if the equivalent is at least three times as fast and saves 5% of the
step. The rule applies to CPU code that is not compiled.

## Why it matters

Over a dimension that is not the last one in memory these go number by number: the norm of two rows of 1.6 million
numbers over the rows takes 143 ms, the root of the sum of their squares 2.4 (one core of an AMD EPYC, torch 2.13, least
of 20); `argmax(1)` of 8 x 3 x 256 x 256 numbers 57 ms, `max(1)` 5.8. In KnowledgeGraphEmbedding (RotatE) a step without
`stack(...).norm(dim=0)`, and with a fused optimizer, took 0.18 of the time (0.34 with that line alone replaced)
(`benchmarks/history/outside.jsonl`).

## What to do

Write it as the message says: `x.square().sum(dim).sqrt()` for a norm, `x.max(dim).indices` for an argmax. Sums are
rounded differently in the last bits than in `norm` and `var`. Where zeros can occur and gradients are needed, keep the
root away from them: `(x.square().sum(dim) + 1e-12).sqrt()`. `flatout tune` tries a form that looks at the sums when
the script runs, and takes the call as it is written where one is zero, tiny, huge or NaN; `max(dim).indices` gives the
same places as `argmax` does, of equal values and of NaN, too.

## When it is wrong

Another version of torch may be quick at it: the timings are of this one. Operations in the backward pass or outside of
modules are not seen.
"""

from dataclasses import replace

from flatout.rules.core.bounds import share_of_forward, speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run, SlowReduction
from flatout.units import format_ms

MIN_SHARE = 0.05
MIN_FASTER = 3.0


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO020: reductions over a slow dimension take more than a twentieth of the step."""
    causes = run.causes or Causes()
    slow = [one for one in causes.reductions if one.whole_s > 0 and one.alone_s >= MIN_FASTER * one.other_s > 0]
    if not slow:
        return None
    saved = sum(one.seconds / one.whole_s * (1 - one.other_s / one.alone_s) for one in slow)
    share = share_of_forward(breakdown, causes, slow[0].whole_s, saved)
    if share < MIN_SHARE:
        return None
    worst = max(slow, key=lambda one: one.seconds)
    return Finding(
        code="CO020",
        name="slow-reduction",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is lost in {worst.operation}"
        f"{f' in {at(worst.place)}' if worst.place else ''}: over this dimension it takes "
        f"{format_ms(worst.alone_s * 1e3)}, and {worst.instead} takes {format_ms(worst.other_s * 1e3)}"
        f"{_with_care(worst)}.",
        evidence=(
            Evidence("as it is written, timed alone", worst.alone_s * 1e3, "ms"),
            Evidence("the other way, timed alone", worst.other_s * 1e3, "ms"),
        ),
        fixes=(),
        arguments=(
            Argument("operation", worst.operation),
            Argument("instead", worst.instead),
            *((Argument("shape", worst.shape), Argument("dtype", worst.dtype)) if worst.dtype else ()),
        ),
    )


def _with_care(worst: SlowReduction) -> str:
    """Return what differs: sums are rounded in another order, and the root of zero has no gradient."""
    if worst.operation.startswith("arg"):
        return ""
    root = "; where all numbers can be zero, add 1e-12 before the root" if "norm" in worst.operation else ""
    return f" (rounded differently in the last bits{root})"


_NORM = SlowReduction(
    place=Frame("model.py", 225, "RotatE"),
    operation="linalg_vector_norm",
    instead="x.square().sum(dim).sqrt()",
    seconds=0.006,
    whole_s=0.008,
    alone_s=0.006,
    other_s=0.0002,
)


def _with(*found: SlowReduction) -> Causes:
    return Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, reductions=found)


RULE = Rule(
    code="CO020",
    name="slow-reduction",
    check=check,
    edits=(("maximum",), ("sums",)),
    fires_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with(_NORM)),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_NORM, alone_s=1e-4), _NORM)),
    ),
    quiet_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with()),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_NORM, other_s=0.003))),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_NORM, alone_s=0.0, other_s=0.0))),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_NORM, seconds=0.0005))),
        example(step_ms=20, forward=1, backward=18, causes=_with(_NORM)),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_NORM, seconds=3e-4, whole_s=4e-4))),
    ),
)
