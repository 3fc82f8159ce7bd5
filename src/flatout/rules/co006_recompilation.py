"""A function is recompiled again and again, because sizes or values that its code depends on keep changing.

## What it measures

How often `torch.compile` recompiled each function of the script while steps ran, from its own records, and how long
that took compared with the steps of the deep run. It fires when a function needs more variants than the limit allows
(8 by default; then it stays uncompiled), or after three recompilations that took 5% of the steps. For a module that has
passed the limit, two copies are timed alternately after the last step: one as it is, one compiled anew as the script
does it, with the numbers that it keeps in Python held constant.

## Why it matters

A compilation takes seconds to minutes. Beyond the limit nothing more is compiled: wherever none of its variants fits,
the function runs uncompiled for the rest of the training, with one line in the log.

## What to do

Keep shapes and Python values constant: pad to a few lengths, drop the last partial batch, pass changing numbers as
tensors, do not read `self.step` in `forward`. `torch.compile(dynamic=True)` compiles for all sizes at once:
`flatout tune` tries that where a size is the last reason, and the source shows which call compiles the function.

## When it is wrong

A few recompilations are usual in the first steps of a training: a second size makes the size dynamic. In a long run
they are soon over. No gain is stated for a function that is not a module, for a module that cannot be copied or takes
more than 20 s to compile, nor for the compile time itself, which a long training spreads over more steps. Where some
calls still fit a variant, the gain is smaller than stated.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at
from flatout.schema.finding import Argument, Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, CompiledFunction, CompiledTrial, Frame, Run
from flatout.units import format_seconds, format_share

MIN_SHARE = 0.05
MIN_AGAIN = 3
LEAST = 3  # passes of copies, of each kind


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO006: a function is compiled again and again while steps run, or so often that it is left uncompiled."""
    causes = run.causes or Causes()
    known = [each for each in causes.compiled if each.again >= MIN_AGAIN or each.is_given_up]
    steps_s = sum(causes.phases_s.values())
    if not known or steps_s <= 0:
        return None
    worst = max(known, key=lambda each: (each.is_given_up, each.again_s))
    share = min(1.0, worst.again_s / steps_s)
    if share < MIN_SHARE and not worst.is_given_up:
        return None
    after, gone = _left_uncompiled(causes, worst, breakdown) if worst.is_given_up else ("", 0.0)
    read = f", read in {at(worst.changed_at)}" if worst.changed_at else ""
    why = f" The last reason: {worst.reason}{read}." if worst.reason else ""
    return Finding(
        code="CO006",
        name="recompilation",
        phase=Phase.FORWARD,
        share=min(gone, breakdown.share(Phase.FORWARD)),
        max_speedup=speedup_without(gone),
        bound_by="the backward pass is compiled, too",
        location=worst.changed_at or worst.place,
        message=f"{at(worst.place)} was compiled {worst.compilations} times, {worst.again} of them while "
        f"{causes.num_steps} steps ran (n={worst.again}): {format_seconds(worst.again_s)}, {format_share(share)} of "
        f"their time{after}.{why} Keep sizes and Python values constant, or compile with dynamic=True.",
        evidence=(
            Evidence("compilations", worst.compilations, ""),
            Evidence("compiling again", worst.again_s, "s"),
            Evidence("limit", worst.limit, ""),
        ),
        fixes=(),
        arguments=(Argument("reason", worst.reason),),
    )


def _left_uncompiled(causes: Causes, function: CompiledFunction, breakdown: Breakdown) -> tuple[str, float]:
    """Return what is said of a function that is left as it is, and the share of the step that would go otherwise."""
    said, trial = f"; after {function.limit} it is left uncompiled", causes.compiled_trial
    if trial is None or trial.place != function.place or trial.n < LEAST or trial.written_s <= 0:
        return said, 0.0
    part = trial.compiled_s / trial.written_s
    gone = max(0.0, 1 - part) * (breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD))
    return f"{said}: compiled, a pass takes {format_share(part)} of its time (n={trial.n})", gone


_PLACE, _CALLS = Frame("model.py", 20, "forward"), Frame("model.py", 22, "forward")


def _compiled(times: int, again_s: float, changed_at: Frame | None = None, held_s: float = 0.0) -> Causes:
    found = CompiledFunction(
        place=_PLACE, compilations=times, again=times - 1, seconds=again_s + 4, again_s=again_s, limit=8,
        reason="self.calls == 6", changed_at=changed_at,
    )  # fmt: skip
    trial = CompiledTrial(model="Net", place=_PLACE, n=7, written_s=0.09, compiled_s=held_s) if held_s else None
    return Causes(compiled=(found,), num_steps=60, phases_s={"forward": 10.0}, compiled_trial=trial)


RULE = Rule(
    code="CO006",
    name="recompilation",
    check=check,
    shown_by_few=True,
    fires_on=(
        example(step_ms=100, forward=50, causes=_compiled(5, 2.0)),
        example(step_ms=100, forward=50, causes=_compiled(8, 0.2, _CALLS)),
        example(step_ms=100, forward=40, backward=50, causes=_compiled(8, 0.2, _CALLS, held_s=0.05)),
        example(step_ms=100, forward=40, backward=50, causes=_compiled(8, 0.2, _CALLS, held_s=0.12)),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, causes=_compiled(3, 8.0)),
        example(step_ms=100, forward=50, causes=_compiled(5, 0.4)),
        example(step_ms=100, forward=50),
    ),
    edits=(("dynamic-shapes",),),
)
