"""A compiled function breaks its graph at a line, which then runs in Python between two graphs.

## What it measures

The places where `torch.compile` broke a graph, from its own records, and the share of the forward time that the deep
run saw below each of these lines. It fires when such a line takes at least 5% of the step.

## Why it matters

The code at the break runs uncompiled in every step, and nothing is fused across it: two graphs instead of one, the
values between them written to memory, and on a device an idle gap at each border.

## What to do

Move the line out of the compiled function (printing, checks of values, numpy), or use the torch operation that does the
same. `torch.compile(..., fullgraph=True)` turns each break into an error that names it.

## When it is wrong

A break whose line takes little time is not reported, though it prevents fusion across it. What that costs can only be
measured by removing it.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.user_lines import MIN_SAMPLES, costs, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, GraphBreak, LineCost, Run

MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO005: a line that ends a graph takes a twentieth of the step."""
    forward = costs(run, Phase.FORWARD)
    found = [(seconds(below), each, below) for each, below in _breaks(run, forward)]
    if not found or seconds(forward) <= 0:
        return None
    spent, worst, below = max(found, key=lambda each: each[0])
    share = breakdown.share(Phase.FORWARD) * min(1.0, spent / seconds(forward))
    samples = sum(cost.samples for cost in below)
    if share < MIN_SHARE or samples < MIN_SAMPLES:
        return None
    return Finding(
        code="CO005",
        name="graph-break",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{at(worst.place)} breaks the compiled graph ({worst.reason.rstrip('.')}), and the Python code there "
        f"takes {of_step(breakdown, share * breakdown.mean_ms)}. Move it out of the compiled function.",
        evidence=(
            Evidence("graph breaks", sum(each.count for each, _ in _breaks(run, forward)), ""),
            Evidence("cost in each step", share * breakdown.mean_ms, "ms"),
            Evidence("stack samples", samples, ""),
        ),
        fixes=(),
    )


def _breaks(run: Run, forward: tuple[LineCost, ...]) -> list[tuple[GraphBreak, list[LineCost]]]:
    """Return the breaks in the user's code, each with what was seen below its line."""
    known = run.causes.breaks if run.causes else ()
    return [(each, [cost for cost in forward if _below(cost, each.place)]) for each in known if each.place]


def _below(cost: LineCost, place: Frame) -> bool:
    return any((frame.file, frame.line) == (place.file, place.line) for frame in cost.stack)


_PLACE = ("model.py", 31, "Net.forward")
_GRAPH = ("model.py", 32, "Net.forward")


def _causes(at_break_s: float, broken: bool = True) -> Causes:
    lines = (
        line(at_break_s, _PLACE, phase=Phase.FORWARD, leaf="numpy"),
        line(2.0, _GRAPH, phase=Phase.FORWARD, leaf="torch"),
    )
    breaks = (GraphBreak(reason="Tensor.item() call", place=Frame(*_PLACE), count=1),) if broken else ()
    return Causes(lines=lines, breaks=breaks, num_steps=60)


RULE = Rule(
    code="CO005",
    name="graph-break",
    check=check,
    subsumes=("python-in-forward",),
    fires_on=(
        example(step_ms=100, forward=50, backward=40, causes=_causes(1.0)),
        example(step_ms=100, forward=50, backward=40, causes=_causes(0.3)),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, backward=40, causes=_causes(0.1)),
        example(step_ms=100, forward=50, backward=40, causes=_causes(1.0, broken=False)),
        example(step_ms=100, forward=50, backward=40),
    ),
    no_cure="The line does what a graph cannot hold, and only its author can tell whether it may go or move.",
)
