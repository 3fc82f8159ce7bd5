"""A linear layer computes rows that the loss does not read.

## What it measures

In three steps of the deep run, which rows of the outputs of the last linear layers have a gradient. Between such a
layer and the loss there are only operations that pick rows, reshape, average or compare with targets: a gradient that
may be zero because of a value (a hinge, a maximum) tells nothing. After the last step the layer, and the cross entropy
where it is one, are timed forward and backward for all rows and for those that are read. It fires when that saves 10%
of the step. On the CPU only.

## Why it matters

The projection to a vocabulary is often the dearest layer of a model of language, and the logits its largest tensor.
Padding, positions that are not masked in masked language modelling, and all positions but the last one of a sequence
are projected, and normalized, for a loss that ignores them.

## What to do

Pick the rows before the projection: `hidden[targets.ne(ignore_index)]`, `hidden[:, -1]`, and give the loss the targets
of these rows alone. The loss is the same. `flatout tune` tries that where one function shows the layer and what reads
its outputs: one index of rows, or one cross entropy that ignores targets.

## When it is wrong

Where all logits are wanted besides, for a metric in each step. Picking rows makes shapes that change from step to step:
`torch.compile` then compiles for dynamic shapes.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, Run, UnusedRows
from flatout.units import format_ms, format_share

COMPUTING = (Phase.FORWARD, Phase.BACKWARD, Phase.HOST)  # the loss counts as host time in the deep run
MIN_GAIN = 0.10
MIN_UNUSED = 0.25
LEAST_PASSES = 2


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO031: computing rows of a projection that the loss does not read takes a tenth of the step."""
    causes = run.causes or Causes()
    found = causes.unused_rows
    if found is None or found.n < LEAST_PASSES or found.rows <= 0 or found.unused < MIN_UNUSED * found.rows:
        return None
    computing_s = sum(causes.phases_s.get(phase, 0.0) for phase in COMPUTING) / max(1, causes.num_steps)
    if computing_s <= 0:
        return None
    saved = min(1.0, max(0.0, found.all_s - found.used_s) / computing_s)
    share = saved * sum(breakdown.share(phase) for phase in COMPUTING)
    if share < MIN_GAIN:
        return None
    return Finding(
        code="CO031",
        name="unused-output-rows",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=found.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} computes rows that the loss does not read: "
        f"{format_share(found.unused / found.rows)} of the {found.rows} rows of {found.width} numbers"
        f"{f' in {at(found.place)}' if found.place else ''}. Forward and backward take "
        f"{format_ms(found.all_s * 1e3)} for all rows, {format_ms(found.used_s * 1e3)} for the others alone "
        f"(n={found.n}). Pick the rows before the layer: hidden[targets.ne(ignore_index)], or hidden[:, -1].",
        evidence=(
            Evidence("rows that are not read", found.unused / found.rows, ""),
            Evidence("all rows, timed alone", found.all_s * 1e3, "ms"),
            Evidence("the others, timed alone", found.used_s * 1e3, "ms"),
        ),
        fixes=(),
    )


_AT = Frame("model.py", 40, "Model.forward")
_MASKED = UnusedRows(place=_AT, rows=512, unused=430, width=8000, n=5, all_s=0.012, used_s=0.002)


def _with(found: UnusedRows) -> Causes:
    return Causes(num_steps=40, phases_s={"forward": 0.4, "backward": 0.4}, unused_rows=found)


RULE = Rule(
    code="CO031",
    name="unused-output-rows",
    check=check,
    fires_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with(_MASKED)),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_MASKED, place=None))),
    ),
    quiet_on=(
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_MASKED, unused=100))),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_MASKED, n=0))),
        example(step_ms=20, forward=10, backward=9, causes=_with(replace(_MASKED, used_s=0.011))),
        example(step_ms=20, forward=10, backward=9, causes=Causes(unused_rows=_MASKED)),
        example(step_ms=20, forward=10, backward=9),
    ),
    edits=(("early-rows",),),
)
