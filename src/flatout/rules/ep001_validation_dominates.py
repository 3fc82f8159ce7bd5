"""A large part of the training is spent validating.

## What it measures

The time of the validation passes after the first training step, as a share of the recording without start-up. It fires
at 25%.

## Why it matters

Validation teaches the model nothing. Its share is the part by which an epoch could be shorter; other tools record some
fifty training steps and never see it.

## What to do

Validate less often, or on a fixed part of the validation set. Use `torch.no_grad()` (`inference_mode`) and a larger
batch, and treat its loader with the same care as the training loader; keep metrics on the device until the end of the
pass.

## When it is wrong

A recording of few steps that happens to hold a whole validation overstates its share: compare the recorded steps with
the steps between two validations.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_loop
from flatout.rules.facts.validation import passes, place, spent
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run

MIN_SHARE = 0.25


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """EP001: a quarter of the loop is validation."""
    spent_s, count = spent(run, breakdown)
    share = breakdown.loop_share(spent_s)
    if count == 0 or share < MIN_SHARE:
        return None
    with_gradients = any(stretch.with_grad for stretch in passes(run))
    return Finding(
        code="EP001",
        name="validation-dominates",
        phase=Phase.VALIDATION,
        share=share,
        max_speedup=speedup_without(share),
        location=place(run),
        message=f"{of_loop(breakdown, spent_s, count)} is validation, in a recording of "
        f"{breakdown.measured} measured steps. Validate less often or on a part of the set, "
        f"{'with larger batches and without gradients' if with_gradients else 'with larger batches'}.",
        evidence=(
            Evidence("one validation", spent_s / count, "s"),
            Evidence("batches of one validation", sum(stretch.num_batches for stretch in passes(run)) / count, ""),
            Evidence("steps measured", breakdown.measured, ""),
        ),
        fixes=("loader-workers", "compiled-input"),
    )


_LOADER = LoaderFacts(name="Pictures", iterated_at=Frame("train.py", 70, "evaluate"))

RULE = Rule(
    code="EP001",
    name="validation-dominates",
    check=check,
    settings={
        "lightning": "`Trainer(check_val_every_n_epoch=..., limit_val_batches=...)`",
        "transformers": '`TrainingArguments(eval_strategy="steps", eval_steps=..., per_device_eval_batch_size=...)`',
    },
    fires_on=(
        example(step_ms=50, n=100, forward=40, outside_s={Phase.VALIDATION: 2.5}, loaders=(_LOADER,)),
        example(step_ms=50, n=100, forward=40, outside_s={Phase.VALIDATION: 9.0}),
    ),
    quiet_on=(
        example(step_ms=50, n=100, forward=40, outside_s={Phase.VALIDATION: 1.6}, loaders=(_LOADER,)),
        example(step_ms=50, n=100, forward=40),
    ),
)
