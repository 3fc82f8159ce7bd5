"""Each step runs the model on what no update of a weight depends on.

## What it measures

In two steps of the deep run, what outermost modules return is followed through all operations, the backward pass among
them. Calls count whose results reach no gradient that an optimizer reads, nothing that outlives the step but single
numbers, and neither NumPy nor a list. The time of the operations in them and on their results, as a share of that of
all operations, is taken of the step without its input. It fires at 10% of the step, on the CPU, where nothing is
compiled.

## Why it matters

A test batch whose loss is printed, the accuracy before and after each inner step of meta-learning, a second pass to log
a metric: each costs a forward pass in every step, for a line that is printed once in a hundred.

## What to do

Evaluate every so many steps, where it is printed, or between epochs; under `torch.no_grad()`. Where the same batch was
just trained on, use those outputs. `flatout tune` tries `torch.no_grad()` alone, where the source shows no backward
pass of what the line computes: how often a script evaluates is for its author to say.

## When it is wrong

Where the number decides something: an early stop, a schedule by the validation loss, a sample that is chosen. What
leaves torch by a way that is not seen is taken for needed, and so is what is kept.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run, UntrainedCalls

MIN_SHARE = 0.10


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO034: calls whose results train nothing take a tenth of the step."""
    found = [one for one in (run.causes or Causes()).untrained_calls if one.steps and one.whole_s > 0]
    part = min(1.0, sum(one.seconds / one.whole_s for one in found))
    share = part * (1 - breakdown.share(Phase.INPUT) - breakdown.share(Phase.TRANSFER))
    if share < MIN_SHARE:
        return None
    worst = max(found, key=lambda one: one.seconds)
    calls = sum(one.calls for one in found) / worst.steps
    without = "" if not any(one.with_grad for one in found) else ", and under `torch.no_grad()`"
    return Finding(
        code="CO034",
        name="evaluated-each-step",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to {_times(calls)} of {worst.module}"
        f"{f', most of it in {at(worst.place)}' if worst.place else ''}, and to what follows from that. It trains "
        "nothing: no gradient, and no tensor that is kept, depends on it. Evaluate where it is printed or decided on, "
        f"not in each step{without}.",
        evidence=(
            Evidence("such calls in a step", calls, ""),
            Evidence("of all operations, by time", part, ""),
            Evidence("steps followed", worst.steps, ""),
        ),
        fixes=(),
        arguments=(Argument("with_grad", int(any(one.with_grad for one in found))),),
    )


def _times(calls: float) -> str:
    return "a call" if calls == 1 else f"{calls:.0f} calls"


_TEST = UntrainedCalls(
    place=Frame("train.py", 73, "train"), module="HNN", calls=2, steps=2, seconds=0.008, whole_s=0.017, with_grad=True
)


def _with(*found: UntrainedCalls) -> Causes:
    return Causes(num_steps=40, untrained_calls=found)


RULE = Rule(
    code="CO034",
    name="evaluated-each-step",
    check=check,
    fires_on=(
        example(step_ms=20, forward=12, backward=7, causes=_with(_TEST)),
        example(step_ms=20, forward=12, backward=7, causes=_with(replace(_TEST, with_grad=False, calls=22))),
    ),
    quiet_on=(
        example(step_ms=20, forward=12, backward=7, causes=_with()),
        example(step_ms=20, forward=12, backward=7, causes=_with(replace(_TEST, seconds=0.0015))),
        example(step_ms=20, input=17, forward=2, causes=_with(_TEST)),
    ),
    edits=(("not-recorded",),),
)
