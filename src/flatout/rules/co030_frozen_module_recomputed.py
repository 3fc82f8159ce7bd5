"""A module that learns nothing computes the same samples again in every epoch.

## What it measures

In the deep run, the calls of modules whose parameters no optimizer holds and no gradient reaches, with nothing random
in them, and their time. It fires when such calls take at least 20% of the step and their inputs come back: half of the
rows that were looked at had been seen in an earlier step, or the run saw no second epoch and the samples of the data
set are the same each time. Copies of the model that is trained (averages of its weights, target networks) do not count.

## Why it matters

A frozen encoder, backbone or teacher gives the same outputs for the same sample in every epoch. Computed once, they are
read from memory from the second epoch on, at the cost of a look-up.

## What to do

Before the training, or in its first epoch, compute the outputs for all samples once under `torch.no_grad()`, keep them
as one array, and have the data set return them in place of the samples. `flatout tune` tries `kept-outputs`, which
keeps them in memory without a change of your code.

## When it is wrong

Samples that are augmented at random have other outputs each time. Outputs can be larger than the samples: the message
says how large. A training of one epoch gains nothing. Where the module is to be trained later, keep the samples, too.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.loader_facts import training_loader
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, FrozenCalls, LoaderFacts, Planned, Run, SamplePrefix
from flatout.units import format_bytes

MIN_SHARE = 0.20
MIN_REPEATED = 0.5
MIN_CALLS = 0.5  # a step
MIN_ROWS = 16


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO030: a frozen module computes what it has computed in the epoch before, for a fifth of the step."""
    causes = run.causes or Causes()
    forward_s = causes.phases_s.get("forward", 0.0) / max(1, causes.num_steps)
    found = [one for one in causes.frozen_calls if one.steps and one.calls >= MIN_CALLS * one.steps]
    if not found or forward_s <= 0 or run.planned.passes == 1:
        return None
    worst = max(found, key=lambda one: one.seconds)
    share = breakdown.share(Phase.FORWARD) * min(1.0, worst.seconds / worst.steps / forward_s)
    if share < MIN_SHARE or not _comes_back(run, worst):
        return None
    loader = training_loader(run)
    kept = loader.num_samples * worst.output_bytes if loader is not None else 0
    size = f" ({format_bytes(kept)} for all samples)" if kept else ""
    return Finding(
        code="CO030",
        name="frozen-module-recomputed",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=worst.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to calling {worst.module}"
        f"{f', in {at(worst.place)}' if worst.place else ''}, which learns nothing, on samples that are the same in "
        f"every epoch. Compute its outputs once and keep them{size}.",
        evidence=(
            Evidence("calls in a step", worst.calls / worst.steps, ""),
            Evidence("one call", worst.seconds / worst.calls * 1e3, "ms"),
            Evidence("output of a sample", worst.output_bytes, "bytes"),
            Evidence("rows seen before, of those looked at", worst.repeated / max(1, worst.rows), ""),
        ),
        fixes=("kept-outputs",),
    )


def _comes_back(run: Run, calls: FrozenCalls) -> bool:
    """Return whether the module is given the same rows in every epoch, as far as that was seen."""
    if calls.rows < MIN_ROWS:
        return False
    if calls.repeated >= MIN_REPEATED * calls.rows:
        return True
    loader = training_loader(run)
    prefix = loader.prefix if loader is not None else None
    whole = prefix is not None and prefix.deterministic and prefix.checked > 0 and loader is not None
    epochs = loader.epochs_started if loader is not None else 0
    if epochs > 1 and not calls.repeated:
        return False  # a second pass has begun, and nothing came back
    return whole and 2 * calls.row_bytes >= (prefix.sample_bytes if prefix else 0) > 0


_AT = Frame("train.py", 31, "train_epoch")
_ENCODER = FrozenCalls(
    place=_AT,
    module="Encoder",
    calls=40,
    steps=40,
    seconds=0.4,
    rows=320,
    repeated=250,
    row_bytes=12288,
    output_bytes=2048,
)
_FIRST_EPOCH = replace(_ENCODER, repeated=0)
_SAME = LoaderFacts(
    is_training=True, num_samples=5000, prefix=SamplePrefix(checked=4, deterministic=True, sample_bytes=12296)
)
_AUGMENTED = replace(_SAME, prefix=SamplePrefix(checked=4, deterministic=False, sample_bytes=12296))


def _with(*found: FrozenCalls) -> Causes:
    return Causes(num_steps=40, phases_s={"forward": 0.5, "backward": 0.3}, frozen_calls=found)


RULE = Rule(
    code="CO030",
    name="frozen-module-recomputed",
    check=check,
    fires_on=(
        example(step_ms=20, forward=12, backward=7, causes=_with(_ENCODER)),
        example(step_ms=20, forward=12, backward=7, causes=_with(_FIRST_EPOCH), loaders=(_SAME,)),
    ),
    quiet_on=(
        example(step_ms=20, forward=12, backward=7, causes=_with()),
        example(step_ms=20, forward=12, backward=7, causes=_with(_FIRST_EPOCH)),
        example(step_ms=20, forward=12, backward=7, causes=_with(_FIRST_EPOCH), loaders=(_AUGMENTED,)),
        example(
            step_ms=20, forward=12, backward=7, causes=_with(_FIRST_EPOCH), loaders=(replace(_SAME, epochs_started=2),)
        ),
        example(step_ms=20, forward=12, backward=7, causes=_with(_ENCODER), planned=Planned(passes=1)),
        example(step_ms=20, forward=12, backward=7, causes=_with(replace(_ENCODER, seconds=0.1))),
        example(step_ms=20, forward=2, backward=15, input=3, causes=_with(_ENCODER)),
        example(step_ms=20, forward=12, backward=7, causes=_with(replace(_ENCODER, calls=10))),
    ),
)
