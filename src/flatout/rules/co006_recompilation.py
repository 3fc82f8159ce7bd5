"""A function is compiled again and again, because what it is called with keeps changing.

## What it measures

How often `torch.compile` compiled each function of the script again while steps ran, from its own records, and how long
that took, against the steps of the deep run. It fires when more variants of a function are asked for than the limit
allows (8 by default), after which it is left as it is, or at three times that took 5% of the steps. Of a module that is
left so, passes of two copies are timed in turn after the last step, one compiled anew as the script does it, with the
numbers it keeps in Python held still.

## Why it matters

A compilation takes seconds to minutes. After the limit nothing more is compiled: the function runs as it was written
wherever none of its variants fits, for the rest of the training, with one line in the log.

## What to do

Keep shapes and Python values steady: pad to a few lengths, drop the last partial batch, pass numbers that change as
tensors, do not read `self.step` in `forward`. `torch.compile(dynamic=True)` compiles for all sizes at once.

## When it is wrong

In the first steps of a training a few compilations are usual: a second size makes the size dynamic. They are over in
a long run. No gain is stated of a function that is no module, of a module that cannot be copied or takes more than 20 s
to compile, nor of the time that compiling takes: the steps of a long training have more of them. Where some calls
still fit a variant, less comes of it than is stated.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
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
    why = f" The last time: {worst.reason}{read}." if worst.reason else ""
    return Finding(
        code="CO006",
        name="recompilation",
        phase=Phase.FORWARD,
        share=min(gone, breakdown.share(Phase.FORWARD)),
        max_speedup=speedup_without(gone),
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
)
