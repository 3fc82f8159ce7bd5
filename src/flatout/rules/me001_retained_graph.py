"""A value that is kept from step to step keeps the whole autograd graph of its step alive.

## What it measures

The deep run looks, some steps later, which graphs that `backward` was called on are still alive and what refers to
them. It fires when at least half of 5 or more graphs looked at are alive.

## Why it matters

`losses.append(loss)` keeps every tensor that the backward pass saved and the record of every operation: memory grows
with each step until it runs out, and the garbage collector goes through more and more objects.

## What to do

Store numbers, or tensors without a graph: `losses.append(loss.detach())`, `total += loss.detach()`; for states
carried to the next step `h = h.detach()`.

## When it is wrong

Truncated backpropagation through time and meta-learning keep graphs on purpose, for a fixed number of steps. Speed is
lost only as the number grows; the stated gain is what was measured, and 1.0 when the steps did not get slower.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, steps_of
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at
from flatout.rules.facts.growth import growth
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Retained, Run
from flatout.units import format_share

MIN_GRAPHS = 0.5
MIN_STEPS = 5


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """ME001: half of the graphs of past steps are still alive."""
    kept = [found for found in (run.causes.retained if run.causes else ()) if _is_kept(found)]
    if not kept:
        return None
    worst = max(kept, key=lambda found: (found.num_bytes, found.graphs))
    share = _growth_share(run, breakdown)
    alive = min(1.0, worst.graphs / worst.of_steps)
    where = f", in {at(worst.place)}" if worst.place else ""
    keeps = f"`{worst.name}` keeps" if worst.name else "something not visible from the training loop keeps"
    slower = f", and {format_share(share)} of each step is slowdown since the start" if share > 0 else ""
    return Finding(
        code="ME001",
        name="retained-graph",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{format_share(alive)} of the graphs of past steps stay alive (n={worst.of_steps}){slower}: "
        f"{keeps} them{where}. Store `.detach()` of the value instead.",
        evidence=(
            Evidence("graphs alive", worst.graphs, ""),
            Evidence("steps looked at", worst.of_steps, ""),
            Evidence("tensors that keep them", worst.num_bytes, "bytes"),
        ),
        fixes=(),
    )


def _is_kept(found: Retained) -> bool:
    return found.of_steps >= MIN_STEPS and found.graphs >= MIN_GRAPHS * found.of_steps


def _growth_share(run: Run, breakdown: Breakdown) -> float:
    """Return the share of the step by which forward and backward grew over the run."""
    steps = run.steps[breakdown.warmup :]
    rises = [growth(steps, phase) for phase in (Phase.FORWARD, Phase.BACKWARD)]
    extra_ms = sum(rise.extra_ms for rise in rises if rise is not None)
    return min(1.0, extra_ms / breakdown.mean_ms) if breakdown.mean_ms > 0 else 0.0


def _kept(graphs: int, of_steps: int) -> Causes:
    place = Frame("train.py", 52, "train")
    kept = Retained(name="losses", place=place, graphs=graphs, of_steps=of_steps, num_bytes=1 << 26)
    return Causes(retained=(kept,))


_SLOWER = steps_of([{Phase.FORWARD: 10, Phase.BACKWARD: 10 + 0.5 * i} for i in range(60)])

RULE = Rule(
    code="ME001",
    name="retained-graph",
    check=check,
    shown_by_few=True,
    edits=(("detach",),),
    fires_on=(
        example(step_ms=30, forward=10, backward=15, causes=_kept(10, 10)),
        example(steps=_SLOWER, causes=_kept(5, 10)),
    ),
    quiet_on=(
        example(step_ms=30, forward=10, backward=15, causes=_kept(4, 10)),
        example(step_ms=30, forward=10, backward=15, causes=_kept(4, 4)),
        example(step_ms=30, forward=10, backward=15),
    ),
)
