"""The forward pass recomputes something that has not changed since the step before.

## What it measures

In the deep run, two forward passes of the model in two steps, operation by operation. An operation of the second counts
if the first had it with the same inputs, and if it draws no random numbers. Tensors are the same if they are the same
objects, not written to in between, or results of such operations. Their share of the time of all operations of the pass
is multiplied by the share of forward in the step, of which at most three such passes are counted. It fires at 15%: a
single pass varies, for one script between 14% on one day and 22% on another. On the CPU only, where nothing is
compiled.

## Why it matters

Masks, tables of positions, windows, edges of a graph that never changes: when they are made where they are used, they
are made in every layer of every step. A graph attention network (Diego999/pyGAT, `--sparse`) spent half of its step
looking for the edges of one adjacency matrix; found once, and with the same care in its backward pass, a step took
0.33 of the time (`benchmarks/history/outside.jsonl`).

## What to do

Compute it once, where the model or the data are made, and keep it: `self.register_buffer("mask", ...)`, an attribute,
or an argument instead of what it is computed from.

## When it is wrong

Where keeping it takes more memory than there is (one large mask a layer). Where it depends on a shape that changes from
time to time, keep one for each shape.
"""

from flatout.rules.core.bounds import share_of_forward, speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, LoopInvariant, Run

MIN_SHARE = 0.15


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO019: operations on what has not changed take 15% of the step."""
    causes = run.causes or Causes()
    found = causes.unchanging
    whole_s = max((one.whole_s for one in found), default=0.0)
    placed = [one for one in found if one.place is not None]
    if whole_s <= 0 or not placed:
        return None
    of_pass = min(1.0, sum(one.seconds for one in found) / whole_s)
    share = share_of_forward(breakdown, causes, whole_s, of_pass)
    if share < MIN_SHARE:
        return None
    worst = max(placed, key=lambda one: one.seconds)
    return Finding(
        code="CO019",
        name="unchanging-work",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} recomputes what the step before computed from "
        f"the same values, most of it in {at(worst.place)} ({worst.operation}). Compute it once and keep it.",
        evidence=(
            Evidence("such operations, of all in a forward pass", of_pass, ""),
            Evidence("at this line, of a forward pass", worst.seconds * 1e3, "ms"),
        ),
        fixes=(),
    )


_AT = Frame("layers.py", 110, "forward")
_EDGES = LoopInvariant(place=_AT, operation="nonzero", seconds=0.006, whole_s=0.008)
_REST = LoopInvariant(place=None, operation="t", seconds=0.0002, whole_s=0.008)
_SMALL = LoopInvariant(place=_AT, operation="triu", seconds=0.0004, whole_s=0.0005)


def _with(*found: LoopInvariant) -> Causes:
    return Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, unchanging=found)


RULE = Rule(
    code="CO019",
    name="unchanging-work",
    check=check,
    fires_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with(_EDGES)),
        example(step_ms=20, forward=10, backward=9, causes=_with(_REST, _EDGES)),
    ),
    quiet_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with()),
        example(step_ms=20, forward=10, backward=9, causes=_with(_REST)),
        example(step_ms=20, forward=2, backward=17, causes=_with(_EDGES)),
        example(
            step_ms=20, forward=10, backward=9, causes=_with(LoopInvariant(place=_AT, seconds=0.0008, whole_s=0.008))
        ),
        example(step_ms=20, forward=10, backward=9, causes=_with(_SMALL)),  # a small part of what the step calls
        example(step_ms=20, forward=10, backward=9, causes=Causes(unchanging=(_EDGES,))),
    ),
)
