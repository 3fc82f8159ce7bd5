"""The sampler takes long to choose the samples of the next batch.

## What it measures

The time a batch spends in the sampler or batch sampler, as a share of the step. The sampler always runs in the
training process, even when workers load the samples. It fires at 7% of the step, for samplers that are not torch's
defaults; for these, too, where the loader is started anew for every other batch or more often.

## Why it matters

A sampler only has to yield indices: a microsecond each. Hand-written samplers sort, filter or search a list for every
batch, and that cost grows with the size of the dataset. `next(iter(loader))` in the loop draws an order of all samples
for the sake of one batch.

## What to do

Compute the order once an epoch, with arrays (`numpy.argsort`, `torch.multinomial`), and only cut it into batches in
`__iter__`. Replace `list.pop(0)`, `list.remove` and `x in list` by indices or sets, `list.count` by a
`collections.Counter`. `flatout tune` tries that for lookups in a list that does not change while the loop runs.

## When it is wrong

If a sampler prepares the whole epoch in its first `next`, that time is divided over the batches that the deep run (the
second, instrumented run) saw. In a longer epoch the cost per batch is lower.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step, within
from flatout.rules.facts.input_stages import COLLATE
from flatout.rules.facts.loader_facts import batch_s, fraction_of_batch, training_loader
from flatout.rules.facts.user_lines import costs, hottest
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run

MIN_SHARE = 0.07
MIN_BATCHES, MOST_STARTED = 8, 0.5  # starts for each batch
MIN_OF_BATCHES = 4  # in an order


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN005: a sampler of the script's own costs 7% of the step."""
    loader = training_loader(run)
    if loader is None or loader.sampler_s <= 0:
        return None
    share = breakdown.share(Phase.INPUT) * _fraction(loader)
    if share < MIN_SHARE:
        return None
    if loader.default_sampler:
        return _begun_anew(breakdown, loader, share) if _begins_anew(loader) else None
    lines = costs(run, Phase.INPUT, stages=("sampler",))
    spot = hottest(lines, among=lines)
    return Finding(
        code="IN005",
        name="slow-sampler",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_without(share),
        location=spot.place if spot else loader.created_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent choosing the samples of the next batch"
        f"{f', in {within(spot)}' if spot else ''}. Compute the order once an epoch, with arrays.",
        evidence=(
            Evidence("sampler", loader.sampler_s * 1000, "ms"),
            Evidence("samples to choose from", loader.num_samples, ""),
            Evidence("batches measured", loader.fetches, ""),
        ),
        fixes=("compiled-python",),
    )


def _begins_anew(loader: LoaderFacts) -> bool:
    """Return whether the loader is started for every other batch or more often, so that each draws a whole order."""
    often = loader.fetches >= MIN_BATCHES and MOST_STARTED * loader.fetches <= loader.epochs_started
    return often and loader.num_samples >= MIN_OF_BATCHES * loader.batch_size > 0


def _begun_anew(breakdown: Breakdown, loader: LoaderFacts, share: float) -> Finding:
    place = loader.iterated_at or loader.created_at
    return Finding(
        code="IN005",
        name="slow-sampler",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_without(share),
        location=place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent drawing an order of {loader.num_samples} "
        "samples, of which one batch is taken: the loader is started anew for each"
        f"{f', in {at(place)}' if place else ''}. Keep one iterator, and start it again when it ends; the order of "
        "samples is then another one.",
        evidence=(
            Evidence("sampler", loader.sampler_s * 1000, "ms"),
            Evidence("starts of the loader", loader.epochs_started, ""),
            Evidence("batches measured", loader.fetches, ""),
        ),
        fixes=(),
    )


def _fraction(loader: LoaderFacts) -> float:
    """Return the sampler's share of what the training process does or waits for in `next`."""
    if loader.num_workers == 0:
        return fraction_of_batch(loader, loader.sampler_s)
    return min(1.0, loader.sampler_s / max(loader.wait_s, loader.sampler_s)) if batch_s(loader) > 0 else 0.0


_SLOW = LoaderFacts(
    is_training=True,
    batch_size=32,
    default_sampler=False,
    num_samples=50_000,
    sample_s=0.01,
    sampler_s=0.01,
    fetches=40,
)
_WORKERS = LoaderFacts(
    is_training=True, default_sampler=False, num_workers=2, sample_s=0.05, sampler_s=0.02, wait_s=0.025, fetches=40
)
_LINES = (line(1.2, ("sampling.py", 14, "Balanced.__iter__"), stage="sampler"),)

_ANEW = LoaderFacts(
    is_training=True,
    batch_size=8,
    num_samples=1_000_000,
    sample_s=0.001,
    sampler_s=0.02,
    fetches=40,
    epochs_started=40,
    iterated_at=Frame("train.py", 30, "main"),
)

RULE = Rule(
    code="IN005",
    name="slow-sampler",
    check=check,
    stage=COLLATE,
    edits=(("list-lookups",),),
    fires_on=(
        example(step_ms=100, input=20, forward=60, loaders=(_SLOW,), lines=_LINES),
        example(step_ms=100, input=25, forward=60, loaders=(_WORKERS,)),
        example(step_ms=100, input=25, forward=60, loaders=(_ANEW,)),
    ),
    quiet_on=(
        example(step_ms=100, input=13.9, forward=60, loaders=(_SLOW,), lines=_LINES),
        example(step_ms=100, input=25, forward=60, loaders=(replace(_ANEW, epochs_started=10),)),
        example(step_ms=100, input=25, forward=60, loaders=(replace(_ANEW, num_samples=8),)),
        example(step_ms=100, input=60, loaders=(LoaderFacts(is_training=True, sample_s=0.05, sampler_s=0.02),)),
    ),
)
