"""The model computes a batch again that it has just computed, and nothing is learned from the second pass.

## What it measures

In the deep run, calls of the model in training mode with the same tensors and other arguments as an earlier call in the
same step or the one before, not written to since. Of these, the calls whose outputs had received no gradient by the end
of the step. It fires when there is at least one for every two steps and they take at least 10% of the step.

## Why it matters

Scripts call the model once more to count hits or to print a loss: without that call, a small convolutional network on
two CPU cores trained 1.24 times as fast (`benchmarks/planted.py`, cloud_types, n=2). A pass that keeps a graph for
gradients also takes its memory, and layers with batch statistics see the batch twice.

## What to do

Keep the outputs of the pass that is trained on, and count on them: `logits = model(x)`, then
`criterion(logits, y)` and `logits.detach().argmax(1)`. `flatout tune` tries that where both calls stand in one function
and the source shows nothing between them that changes weights, the batch or the outputs; not where the second pass
draws random numbers (dropout) or counts in running statistics (batch normalization).

## When it is wrong

Where the weights have changed in between and the new outputs are wanted (the divergence of a policy after its update).
Under `torch.no_grad()` such a pass costs less. On a device only the host's time is measured.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, RepeatedForward, Run

MIN_SHARE = 0.10
MIN_PER_STEP = 0.5


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO014: forward passes of what has been computed already take a tenth of the step."""
    causes = run.causes or Causes()
    often = [one for one in causes.repeated if one.steps > 0 and one.count >= MIN_PER_STEP * one.steps]
    whole_s = sum(causes.phases_s.values())
    if not often or whole_s <= 0:
        return None
    worst = max(often, key=lambda one: one.seconds)
    share = min(breakdown.share(Phase.FORWARD), max(0.0, worst.seconds / whole_s))
    if share < MIN_SHARE:
        return None
    return Finding(
        code="CO014",
        name="repeated-forward",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to computing a batch again that the model has "
        f"just computed{f', in {at(worst.place)}' if worst.place else ''}: these outputs get no gradient. "
        "Keep those of the pass that is trained on.",
        evidence=(
            Evidence("such calls in a step", worst.count / worst.steps, ""),
            Evidence("one of them", worst.seconds / max(1, worst.count) * 1e3, "ms"),
        ),
        fixes=(),
        arguments=(Argument("changed", worst.changed), Argument("marked", worst.marked)),
    )


_AT = Frame("train.py", 35, "train_epoch")
_COUNTED = RepeatedForward(place=_AT, count=40, steps=40, seconds=0.16)


def _with(*found: RepeatedForward) -> Causes:
    return Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, repeated=found)


RULE = Rule(
    code="CO014",
    name="repeated-forward",
    check=check,
    fires_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with(_COUNTED)),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_COUNTED, seconds=0.001, count=1), _COUNTED)),
    ),
    quiet_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with()),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_COUNTED, count=15))),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_COUNTED, seconds=0.07))),
        example(step_ms=20, forward=1.5, backward=18, causes=_with(_COUNTED)),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_COUNTED, steps=0))),
    ),
    edits=(("earlier-outputs",),),
)
