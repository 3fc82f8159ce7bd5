"""One step calls a function again for what it has already.

## What it measures

In the deep run, the functions of the script's that take at least 3% of one step. In a later step each of their calls is
compared with the earlier ones of the same step: by what it is given (numbers, names, tensors that see the same memory
and were not written to in between) and by the contents of what it returns. The calls that came again count with their
part of the function's stack samples; it fires at 5% of the step. Nothing is compared where functions are compiled, of
functions that are given tensors with gradients, or that return few numbers.

## Why it matters

Nearest neighbours of points, distances, masks and positions depend on the batch, not on the layer, but are made where
they are used: in every layer. For five edge convolutions over the same 256 points, `flatout tune` confirmed 1.72x
(1.23 to 2.40, n=11 pairs, one epoch, on a busy machine; `airway_points` of the fourth unseen set, 2 cores of an AMD
EPYC, torch 2.13).

## What to do

Compute it once, where the step begins, and hand it to the layers as an argument. `flatout tune` tries `kept-calls`,
which keeps what such a function returns for as long as what it read is there, unchanged.

## When it is wrong

Where each caller writes to what it is given, it needs a copy of its own: copying is quick beside the call, as a rule.
Where a layer moves the points (dynamic graphs on features), the calls are given other tensors, and do not count.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.user_lines import MIN_SAMPLES, phase_of, share_below
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, RepeatedCall, Run

MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO036: calls of a function for what the step has already take a twentieth of it."""
    constant = {(one.file, one.function) for one in run.causes.unchanging_calls} if run.causes else set()
    some = [
        (one, *_share(run, breakdown, one))
        for one in (run.causes.repeated_calls if run.causes else ())
        if (one.file, one.function) not in constant  # CO019
    ]
    seen = [each for each in some if each[1] >= MIN_SHARE and each[2] >= MIN_SAMPLES]
    if not seen:
        return None
    worst, share, samples = max(seen, key=lambda each: each[1])
    place = worst.places[0]
    return Finding(
        code="CO036",
        name="repeated-in-step",
        phase=phase_of(run, place),
        share=share,
        max_speedup=speedup_without(share),
        location=place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to calling `{worst.function}` again, in "
        f"{at(place)}: {worst.again} of its {worst.calls} calls in a step are given what an earlier one was given, and "
        "return the same. Compute it once in a step and hand it on.",
        evidence=(
            Evidence("calls in a step", worst.calls, ""),
            Evidence("that return what an earlier one did", worst.again, ""),
            Evidence("stack samples", samples, ""),
        ),
        fixes=("kept-calls",),
        arguments=(Argument("function", worst.function), Argument("numbers", worst.numbers)),
    )


def _share(run: Run, breakdown: Breakdown, one: RepeatedCall) -> tuple[float, int]:
    """Return the share of the step that the calls take which came again, and the samples of all of them."""
    if not one.places or one.calls <= 0:
        return 0.0, 0
    parts = [share_below(run, breakdown, place, one.function) for place in one.places]
    return one.again / one.calls * sum(share for share, _ in parts), sum(samples for _, samples in parts)


_LAYER = Frame("points.py", 40, "EdgeConv.forward")
_NEAREST = RepeatedCall(places=(_LAYER,), function="nearest", file="points.py", calls=5, again=4, numbers=12_288)
_OTHER = RepeatedCall(places=(_LAYER,), function="mask", file="points.py", calls=2, again=1, numbers=64)
_NET = ("points.py", 60, "Net.forward")


def _with(seconds: float, *calls: RepeatedCall) -> Causes:
    """Return causes of a forward pass of one second, of which calls of `nearest` take `seconds`."""
    outer = (_LAYER.file, _LAYER.line, _LAYER.function)
    lines = (
        line(seconds, ("points.py", 12, "nearest"), outer, _NET, phase=Phase.FORWARD),
        line(1 - seconds, _NET, phase=Phase.FORWARD),
    )
    return Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, lines=lines, repeated_calls=calls)


RULE = Rule(
    code="CO036",
    name="repeated-in-step",
    check=check,
    fires_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with(0.3, _NEAREST)),
        example(step_ms=20, forward=15, backward=4, causes=_with(0.6, _OTHER, _NEAREST)),
    ),
    quiet_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with(0.3)),
        example(step_ms=20, forward=10, backward=9, causes=_with(0.1, _NEAREST)),
        example(step_ms=20, forward=10, backward=9, causes=_with(0.3, RepeatedCall(function="nearest", calls=1))),
    ),
)
