"""A large part of the training is spent validating.

## What it measures

The time of the validation passes after the first training step, as a share of the recording without start-up. Where no
epoch ended in that time, the deep run ends one early and times some batches of its validation: then it is the share of
an epoch. It fires at 25%.

## Why it matters

Validation teaches the model nothing. Its share is the part by which an epoch could be shorter; other tools record some
fifty training steps and never see it.

## What to do

Validate less often, or on a fixed part of the validation set. Use `torch.no_grad()` (`inference_mode`) and a larger
batch, and treat its loader with the same care as the training loader; keep metrics on the device until the end of the
pass. A tensor that `torch.cat` lets grow from batch to batch is copied each time: `flatout tune` tries a list.

## When it is wrong

A recording of few steps that happens to hold a whole validation overstates its share: compare the recorded steps with
the steps between two validations.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.facts.epoch_ends import recorded, seen_once
from flatout.rules.facts.validation import input_share, passes, place, spent
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run

MIN_SHARE = 0.25
_OF_LOADERS = 0.1  # of a validation, that its loaders take, below which no fix of the input is named


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """EP001: a quarter of the loop is validation."""
    spent_s, count = spent(run, breakdown)
    found = recorded(breakdown, spent_s, count) if count else None
    if found is None and run.epoch_end is not None:
        found = seen_once(run, breakdown, run.epoch_end.validation_s)
    if found is None or found.share < MIN_SHARE:
        return None
    with_gradients = any(stretch.with_grad for stretch in passes(run))
    return Finding(
        code="EP001",
        name="validation-dominates",
        phase=Phase.VALIDATION,
        share=found.share,
        max_speedup=speedup_without(found.share),
        location=place(run),
        message=f"{found.words} is validation, in a recording of "
        f"{breakdown.measured} measured steps. Validate less often or on a part of the set, "
        f"{'with larger batches and without gradients' if with_gradients else 'with larger batches'}.",
        evidence=(
            Evidence("one validation", found.seconds / found.count, "s"),
            Evidence(
                "batches of one validation", sum(stretch.num_batches for stretch in passes(run)) / found.count, ""
            ),
            Evidence("steps measured", breakdown.measured, ""),
        ),
        fixes=("loader-workers", "compiled-input") if input_share(run) >= _OF_LOADERS else (),
    )


_LOADER = LoaderFacts(name="Pictures", iterated_at=Frame("train.py", 70, "evaluate"))

RULE = Rule(
    code="EP001",
    name="validation-dominates",
    check=check,
    edits=(("collect",), ("element-writes",), ("builtin-sum",)),
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
