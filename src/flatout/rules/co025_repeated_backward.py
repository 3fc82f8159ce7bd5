"""One graph is walked by several backward passes whose gradients are only added up.

## What it measures

In two steps of the deep run, every node of every backward pass is timed. It counts the time of nodes that an earlier
pass of the same step had run before, where no gradient or weight was read or changed in between.
It fires at 7% of the step.

## Why it matters

`loss.backward(retain_graph=True)` for each task, each head or each time step goes through what they share once for each
of them; with a loss at every time step of a recurrence the number of nodes grows with the square of its length.
Gradients add up: the gradient of the sum is the sum of the gradients, and one pass of the sum runs each node once. The
graph also stays in memory until the last pass.

## What to do

Make one pass: `torch.autograd.backward([loss_a, loss_b])`, or `sum(losses).backward()`. Sums are rounded in another
order, so the last bits differ. `flatout tune` tries the first for passes of one block or loop between which the source
reads no gradient and changes no weight; not where a hook or `DistributedDataParallel` may look at each pass.

## When it is wrong

Methods that look at each task's own gradient (gradient surgery, norms for weighting) need a pass each. They read
gradients between the passes, which is seen in Python, and then nothing is said.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.backward_time import share_of_nodes, timed_nodes
from flatout.schema.backward import BackwardCall, BackwardFacts
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run

MIN_SHARE = 0.07


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO025: 7% of the step runs nodes again that a pass before had run."""
    found = timed_nodes(run)
    calls = [each for each in (found.calls if found else ()) if each.again_s > 0]
    if found is None or not calls:
        return None
    worst, again_s = max(calls, key=lambda each: each.again_s), sum(each.again_s for each in calls)
    share, passes = share_of_nodes(found, breakdown, again_s), sum(each.passes for each in found.calls)
    if share < MIN_SHARE:
        return None
    return Finding(
        code="CO025",
        name="repeated-backward",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} runs parts of the graph again that an earlier "
        f"backward pass of the same step has run: {passes:.1f} passes a step, most from {at(worst.place) or 'a line'}, "
        "whose gradients are only added up. Make one pass: torch.autograd.backward([...]).",
        evidence=(
            Evidence("nodes that run again", again_s * 1000, "ms"),
            Evidence("passes a step", passes, ""),
            Evidence("steps looked at", found.steps, ""),
        ),
        fixes=(),
        arguments=(Argument("passes", passes),),
    )


_AT = Frame("train.py", 30, "train")


def _with(again_s: float, *, passes: float = 6.0) -> Causes:
    call = BackwardCall(place=_AT, passes=passes, seconds=0.03, again_s=again_s)
    return Causes(num_steps=60, backward=BackwardFacts(steps=2, seconds=0.03, calls=(call,)))


RULE = Rule(
    code="CO025",
    name="repeated-backward",
    check=check,
    edits=(("one-backward",),),
    fires_on=(
        example(step_ms=60, forward=20, backward=35, causes=_with(0.02)),
        example(step_ms=60, forward=20, backward=35, causes=_with(0.005, passes=2.0)),
    ),
    quiet_on=(
        example(step_ms=60, forward=20, backward=35, causes=_with(0.002)),
        example(step_ms=60, forward=20, backward=35, causes=_with(0.0)),
        example(step_ms=600, forward=20, backward=35, causes=_with(0.02)),
        example(step_ms=60, forward=20, backward=35, causes=Causes(num_steps=60)),
    ),
)
