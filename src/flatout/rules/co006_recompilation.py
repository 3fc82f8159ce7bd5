"""A function is compiled again and again, because what it is called with keeps changing.

## What it measures

How often `torch.compile` compiled each function of the script again while steps ran, from its own records, and how long
that took, against the steps of the deep run. It fires when the limit is reached after which a function is left
uncompiled (8 by default), or at three times that took 5% of the steps.

## Why it matters

A compilation takes seconds to minutes. After the limit the function runs as it was written, for the rest of the
training, with one line in the log.

## What to do

Keep shapes and Python values steady: pad to a few lengths, drop the last partial batch, pass numbers that change as
tensors, do not read `self.step` in `forward`. `torch.compile(dynamic=True)` compiles for all sizes at once.

## When it is wrong

In the first steps of a training a few compilations are usual: a second size makes the size dynamic. They are over in
a long run. What compiled code would give in place of what is left uncompiled is not known, so no gain is stated.
"""

from flatout.rules.example import example
from flatout.rules.rule import Rule
from flatout.rules.sentence import at
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, CompiledFunction, Frame, Run
from flatout.units import format_seconds, format_share

MIN_SHARE = 0.05
MIN_AGAIN = 3


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO006: a function is compiled again and again while steps run, or so often that it is left uncompiled."""
    causes = run.causes or Causes()
    known = [each for each in causes.compiled if each.again >= MIN_AGAIN or _is_given_up(each)]
    steps_s = sum(causes.phases_s.values())
    if not known or steps_s <= 0:
        return None
    worst = max(known, key=lambda each: (_is_given_up(each), each.again_s))
    given_up = _is_given_up(worst)
    share = min(1.0, worst.again_s / steps_s)
    if share < MIN_SHARE and not given_up:
        return None
    after = f"; after {worst.limit} it is left uncompiled" if given_up else ""
    read = f", read in {at(worst.changed_at)}" if worst.changed_at else ""
    why = f" The last time: {worst.reason}{read}." if worst.reason else ""
    return Finding(
        code="CO006",
        name="recompilation",
        phase=Phase.FORWARD,
        share=0.0,
        max_speedup=1.0,
        location=worst.changed_at or worst.place,
        message=f"{at(worst.place)} was compiled {worst.compilations} times, {worst.again} of them while "
        f"{causes.num_steps} steps ran (n={worst.again}): {format_seconds(worst.again_s)}, {format_share(share)} of "
        f"their time{after}.{why} Keep sizes and Python values steady, or compile with dynamic=True.",
        evidence=(
            Evidence("compilations", worst.compilations, ""),
            Evidence("compiling again", worst.again_s, "s"),
            Evidence("limit", worst.limit, ""),
        ),
        fixes=(),
    )


def _is_given_up(function: CompiledFunction) -> bool:
    return 0 < function.limit <= function.compilations and function.again > 0


_PLACE, _CALLS = Frame("model.py", 20, "forward"), Frame("model.py", 22, "forward")


def _compiled(times: int, again_s: float, changed_at: Frame | None = None) -> Causes:
    found = CompiledFunction(
        place=_PLACE, compilations=times, again=times - 1, seconds=again_s + 4, again_s=again_s, limit=8,
        reason="self.calls == 6", changed_at=changed_at,
    )  # fmt: skip
    return Causes(compiled=(found,), num_steps=60, phases_s={"forward": 10.0})


RULE = Rule(
    code="CO006",
    name="recompilation",
    check=check,
    fires_on=(
        example(step_ms=100, forward=50, causes=_compiled(5, 2.0)),
        example(step_ms=100, forward=50, causes=_compiled(8, 0.2, _CALLS)),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, causes=_compiled(3, 8.0)),
        example(step_ms=100, forward=50, causes=_compiled(5, 0.4)),
        example(step_ms=100, forward=50),
    ),
)
