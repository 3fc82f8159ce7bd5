"""The forward pass copies large tensors where nothing needs a copy.

## What it measures

In one forward pass of the deep run, operation by operation: copies that a line of the script makes, and what their
results are used for. A copy counts where it is a `clone` of which neither side is written to afterwards; a `repeat`, or
a copy of an expanded tensor, whose results only meet other tensors element by element; a `cat` whose result is only
joined again at the same line, so that what has grown is copied in each turn; or a cast to float64 whose result is only
cast back. Their share of the time of all operations of the pass is multiplied by the share of forward in the step. It
fires at 8%. On the CPU only, where nothing is compiled.

## Why it matters

A copy reads and writes all bytes, and its new memory is fresh: the system clears each page before it is written. A
tensor that grows by `cat` in a loop of n turns is copied n times, n/2 of its final size each.

## What to do

Leave `clone` out. Let shapes broadcast (`x[:, None] - y[None]`) in place of `repeat`. Append to a list and join it once
after the loop. Leave the type as it is. `flatout tune` tries each of these where the function of the line shows nothing
that writes into the copy or what it is of, keeps or returns it.

## When it is wrong

Where the caller writes into what the model returns. Where a copy makes later operations quicker by its order in memory:
copies that change the order do not count.
"""

from dataclasses import replace

from flatout.rules.core.bounds import share_of_forward, speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, NeedlessCopy, Run
from flatout.units import format_bytes

MIN_SHARE = 0.08
INSTEAD = {
    "clone": "Neither side is written to: leave the copy out.",
    "repeat": "Its results only meet other tensors element by element: let the shapes broadcast.",
    "growing": "What has grown is copied in each turn: append to a list, and join it once after the loop.",
    "cast": "The result is only cast back: leave the type as it is.",
}


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO032: copies that nothing needs take a tenth of the step."""
    causes = run.causes or Causes()
    found = [one for one in causes.needless_copies if one.whole_s > 0 and one.kind in INSTEAD]
    if not found:
        return None
    of_pass = sum(one.seconds for one in found) / found[0].whole_s
    share = share_of_forward(breakdown, causes, found[0].whole_s, of_pass)
    if share < MIN_SHARE:
        return None
    worst = max(found, key=lambda one: one.seconds)
    num_bytes, count = sum(one.num_bytes for one in found), sum(one.count for one in found)
    return Finding(
        code="CO032",
        name="needless-copies",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} copies {format_bytes(num_bytes)} in each forward "
        f"pass that nothing needs ({count} copies), most of it in {at(worst.place)}. {INSTEAD[worst.kind]}",
        evidence=(
            Evidence("copied in a forward pass", num_bytes, "bytes"),
            Evidence("of that at this line", worst.num_bytes, "bytes"),
            Evidence("at this line, of a forward pass", worst.seconds * 1e3, "ms"),
        ),
        fixes=(),
        arguments=(Argument("kind", worst.kind),),
    )


_AT = Frame("model.py", 41, "Net.forward")
_CLONE = NeedlessCopy(kind="clone", place=_AT, count=4, num_bytes=64 << 20, seconds=0.003, whole_s=0.008)


def _with(*found: NeedlessCopy) -> Causes:
    return Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, needless_copies=found)


RULE = Rule(
    code="CO032",
    name="needless-copies",
    check=check,
    fires_on=tuple(
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_CLONE, kind=kind))) for kind in INSTEAD
    ),
    quiet_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with()),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_CLONE, seconds=0.0008))),
        example(step_ms=20, forward=2, backward=17, causes=_with(_CLONE)),
        example(step_ms=20, forward=10, backward=9, causes=Causes(needless_copies=(_CLONE,))),
    ),
    edits=(("copy-left-out",), ("broadcast",)),
)
