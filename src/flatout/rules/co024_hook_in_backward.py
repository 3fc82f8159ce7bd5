"""Hooks that only look at gradients run in every backward pass.

## What it measures

In three steps of the deep run, which functions of the script the backward pass calls, and whether they give a gradient
back or change what they are given; then the backward time that the line sampler sees in those that do neither. It fires
at 5% of the step, for all such hooks together, and names the one that takes most.

## Why it matters

`register_hook`, `register_post_accumulate_grad_hook` and `register_full_backward_hook` run once for each tensor or
module in each step. Norms, histograms and copies there cost more than the gradients that they look at, and nobody reads
most of them.

## What to do

Look every hundredth step: return at once in the others, or remove the hooks (`handle.remove()`). Norms of all
gradients are one call after the pass: `torch._foreach_norm([p.grad for p in model.parameters()])`. `flatout tune --also
CO024` tries the hook that takes most with a `return` in its first line: the weights stay the same to the last bit, and
what it gathers is not there any more.

## When it is wrong

A hook that reads gradients which the step needs elsewhere (a schedule that follows their norm, say) is needed. Hooks
that run in threads of a device are not seen, nor are those that change something only through a variable of their own.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import goes_to, of_step
from flatout.rules.facts.backward_time import called_by_autograd, inside, share_of_lines
from flatout.rules.facts.user_lines import hottest, seconds
from flatout.schema.backward import BackwardFacts, BackwardPython
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run

MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO024: a twentieth of the step is hooks that only look at gradients."""
    found = run.causes.backward if run.causes else None
    looking = [each for each in (found.python if found else ()) if each.observes]
    lines = {id(cost): cost for each in looking for cost in inside(run, each.place)}
    share = share_of_lines(run, breakdown, tuple(lines.values()))
    own = [called_by_autograd(cost, [each.place for each in looking]) for cost in lines.values()]
    spot = hottest(own, among=own)
    if share < MIN_SHARE or spot is None:
        return None
    runs = sum(each.runs for each in looking)
    worst = max(looking, key=lambda each: seconds(inside(run, each.place)))
    return Finding(
        code="CO024",
        name="hook-in-backward",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=spot.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is hooks of the backward pass that only look at "
        f"gradients, {runs:.0f} runs a step, most of it in {goes_to(spot)} ({spot.samples} stack samples). "
        "Look every hundredth step and return at once in the others, or take the figures after the pass, "
        "of all gradients together.",
        evidence=(
            Evidence("cost in each step", share * breakdown.mean_ms, "ms"),
            Evidence("runs a step", runs, ""),
            Evidence("stack samples", spot.samples, ""),
        ),
        fixes=(),
        arguments=(Argument("file", worst.place.file), Argument("line", worst.place.line)),
    )


_HOOK = ("train.py", 12, "watch.<locals>.note")
_TRAIN = ("train.py", 44, "train")


def _seen(spent: float, *, observes: bool = True) -> Causes:
    """Return causes of 60 steps with backward passes of 2 s, of which hooks take `spent`."""
    entry = BackwardPython(place=Frame("train.py", 11, "watch.<locals>.note"), kind="hook", runs=8, observes=observes)
    lines = (line(spent, _HOOK, _TRAIN, phase=Phase.BACKWARD), line(2 - spent, _TRAIN, phase=Phase.BACKWARD))
    facts = BackwardFacts(python=(entry,))
    return Causes(lines=lines, num_steps=60, phases_s={Phase.BACKWARD: 2.0}, backward=facts)


RULE = Rule(
    code="CO024",
    name="hook-in-backward",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, causes=_seen(1.0)),
        example(step_ms=100, forward=30, backward=60, causes=_seen(0.2)),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, causes=_seen(0.1)),
        example(step_ms=100, forward=30, backward=60, causes=_seen(1.0, observes=False)),
        example(step_ms=100, forward=30, backward=60, causes=Causes(num_steps=60)),
    ),
    edits=(("silent-hook",),),
)
