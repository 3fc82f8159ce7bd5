"""A backward pass computes gradients that are thrown away before anybody reads them.

## What it measures

In three steps of the deep run, what becomes of the gradients of each backward pass: read by an optimizer's step or by
the script, or set to zero before that; and of tensors that are no parameters, such as inputs, whether anybody reads
their gradient at all. Then passes that leave such gradients out alternate with passes as they are, to measure what is
saved. That is not done with several ranks, on a device, or where the script hooks tensors: there the time of nodes
counts that lead to nothing else. It fires at 5% of the step; at 12% where only weights of layers are concerned that the
gradient has to go through (those of a discriminator, on the way to the generator).

## Why it matters

The loss of a discriminator walks through the generator, that of an actor through the critic's weights, that of a
student through its peer, when nothing is detached: half of the pass or more is work for a gradient that the next
`zero_grad()` removes. An input with `requires_grad` costs the gradient of the first layer, often its largest.

## What to do

Detach what comes from the other network (`discriminator(fake.detach())`), or make it under `torch.no_grad()`. Where the
gradient has to go through a network that is not trained by this loss, switch its parameters off meanwhile
(`critic.requires_grad_(False)`), or name what is trained: `loss.backward(inputs=list(actor.parameters()))`. Take
`requires_grad` off inputs. `flatout tune` tries `.detach()` where the source shows which network made the argument, and
`inputs=` with what the optimizers hold that step before the next pass; neither where a gradient is clipped or read
in between.

## When it is wrong

Where such gradients are read in a way that is not seen (in C++, or only in steps that were not looked at), they are
needed. With `inputs=` the forward pass still records the graph; detaching saves that, too.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.backward_time import share_of_nodes, timed_nodes
from flatout.rules.facts.setting_trials import computing, is_sure, measured
from flatout.schema.backward import BackwardFacts, NeedlessPass
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run, SettingTrial
from flatout.units import format_bytes

MIN_SHARE = 0.05
MIN_ON_THE_WAY = 0.12  # of weights alone, in layers that the gradient has to go through


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO026: a twentieth of the step computes gradients that are thrown away."""
    found = timed_nodes(run)
    if found is None or not found.needless:
        return None
    price = measured(run, "discarded")
    nodes = share_of_nodes(found, breakdown, sum(each.seconds for each in found.needless))
    gone = max(0.0, price.share * computing(breakdown)) if price is not None and is_sure(price) else nodes
    if price is not None and not is_sure(price):
        gone = min(nodes, max(0.0, price.share * computing(breakdown)))
    worst = found.needless[0]
    if gone < (MIN_ON_THE_WAY if all(each.on_the_way for each in found.needless) else MIN_SHARE):
        return None
    share = min(gone, breakdown.share(Phase.BACKWARD))
    return Finding(
        code="CO026",
        name="discarded-gradients",
        phase=Phase.BACKWARD,
        share=share,
        max_speedup=speedup_without(gone),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to gradients that nobody reads: the "
        f"backward pass from {at(worst.place) or 'one line'} makes {_what(worst)}. {_cure(worst)}",
        evidence=(
            Evidence("nodes that lead to nothing else", nodes * breakdown.mean_ms, "ms"),
            Evidence("parameters", worst.parameters, ""),
            Evidence("inputs", worst.inputs, ""),
            Evidence("steps looked at", found.steps, ""),
        ),
        fixes=(),
        arguments=(Argument("parameters", worst.parameters), Argument("inputs", worst.inputs)),
    )


def _what(worst: NeedlessPass) -> str:
    size = format_bytes(worst.num_bytes)
    if not worst.parameters:
        asked = "which this pass adds up once more" if worst.asked_for else "whose gradient nobody asks for"
        return f"the gradient of an input ({size}), which has requires_grad and {asked}"
    also = " and of an input" if worst.inputs else ""
    return f"those of {worst.parameters} parameters{also} ({size}), which are set to zero before their optimizer steps"


def _cure(worst: NeedlessPass) -> str:
    if not worst.parameters and worst.asked_for:
        return "Name what is trained: `loss.backward(inputs=list(model.parameters()))`."
    if not worst.parameters:
        return "Take requires_grad off it, or detach it."
    return (
        "Detach what the other network gives, or switch its parameters off meanwhile: `requires_grad_(False)`, or "
        "`backward(inputs=...)` with what is trained."
    )


_LOST = NeedlessPass(place=Frame("train.py", 30, "train"), parameters=6, num_bytes=3_000_000, seconds=0.01)


def _with(spent_s: float, price: SettingTrial | None = None, lost: NeedlessPass = _LOST) -> Causes:
    facts = BackwardFacts(steps=2, seconds=0.03, needless=(replace(lost, seconds=spent_s),))
    return Causes(num_steps=60, backward=facts, prices=() if price is None else (price,))


_PRICE = SettingTrial(switch="discarded", own=1.0, share=0.3, steps=20, ordered=1.0)
_SOME = replace(_PRICE, share=0.1)
_INPUT = NeedlessPass(place=_LOST.place, inputs=1, num_bytes=200_000)

RULE = Rule(
    code="CO026",
    name="discarded-gradients",
    check=check,
    edits=(("detach-argument",), ("needed-inputs",)),
    fires_on=(
        example(step_ms=60, forward=20, backward=35, causes=_with(0.01)),
        example(step_ms=60, forward=20, backward=35, causes=_with(0.001, _PRICE)),
        example(step_ms=60, forward=20, backward=35, causes=_with(0.005, lost=_INPUT)),
        example(step_ms=60, forward=20, backward=35, causes=_with(0.001, _PRICE, replace(_LOST, on_the_way=True))),
    ),
    quiet_on=(
        example(step_ms=60, forward=20, backward=35, causes=_with(0.001)),
        example(step_ms=60, forward=20, backward=35, causes=_with(0.001, _SOME, replace(_LOST, on_the_way=True))),
        example(step_ms=60, forward=20, backward=35, causes=_with(0.01, replace(_PRICE, share=0.0, ordered=0.5))),
        example(step_ms=60, forward=20, backward=35, causes=Causes(num_steps=60)),
    ),
)
