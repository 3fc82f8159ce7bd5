"""The first batch of every epoch takes much longer than the others.

## What it measures

For a loader with persistent workers, how long the training waits for the first batch of each epoch after the first,
compared with the other batches (where workers are restarted, see IN009). It fires from three epochs on, when three
things hold: the extra wait is 5% of the recorded loop, the median first batch takes at least twice as long as the
usual one, and the usual one is hardly waited for. Workers that cannot keep up gain nothing from a quicker start.

## Why it matters

The training stands still while workers fill a shuffle buffer, build an index or open files, with no batch ready. Later
in the epoch the workers wait for the training. With a buffer of 600 samples in each of two workers, which read a
sample in 0.5 ms, epochs of 50 steps of 20 ms took 1.55 s, and 1.25 s with the buffer kept (medians of n=3 runs).

## What to do

Keep what is filled or opened (the buffer, the open files) from epoch to epoch; make the buffer smaller, or start
before it is full; make epochs longer, by a sampler that repeats the data. `prefetch_factor` does not help: workers are
asked for the first batch only when the epoch begins.

## When it is wrong

Where an epoch lasts an hour, a second at its start is nothing: the share is that of the recorded epochs.
"""

from dataclasses import replace
from statistics import median

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, steps_of
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_loop
from flatout.rules.facts.gaps import first_batches
from flatout.rules.facts.loader_facts import training_loader
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Frame, Header, LoaderFacts, Outside, Run, Step
from flatout.units import format_ms

MIN_EPOCHS = 2
MIN_FACTOR = 2.0
MIN_SHARE = 0.05
HARDLY = 0.10  # of the step

_INPUT = STEP_PHASES.index(Phase.INPUT)


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN016: waiting for the first batches of epochs takes a twentieth of the loop."""
    loader = training_loader(run)
    if loader is None or not (loader.num_workers and loader.persistent_workers):
        return None
    others = [step.phases_ns[_INPUT] / 1e6 for step in run.steps if not step.first_of_epoch]
    usual = median(others) if others else 0.0
    first = _first_ms(run, usual)
    if len(first) < MIN_EPOCHS or not others:
        return None
    spent_s = sum(max(0.0, each - usual) for each in first) / 1e3
    share = breakdown.loop_share(spent_s)
    if share < MIN_SHARE or median(first) < MIN_FACTOR * usual or usual > HARDLY * breakdown.mean_ms:
        return None
    return Finding(
        code="IN016",
        name="slow-first-batch",
        phase=Phase.EPOCH_GAP,
        share=min(1.0, share),
        max_speedup=speedup_without(share),
        location=loader.iterated_at or loader.created_at,
        message=f"{of_loop(breakdown, spent_s, len(first))} is spent waiting for the first batch of an epoch: "
        f"{format_ms(median(first))}, where others take {format_ms(usual)}. Keep buffers and open files from epoch "
        "to epoch, or make epochs longer.",
        evidence=(
            Evidence("first batch of an epoch", median(first), "ms"),
            Evidence("other batches", usual, "ms"),
            Evidence("epochs", len(first), ""),
        ),
        fixes=("compiled-input",),
    )


def _first_ms(run: Run, usual_ms: float) -> list[float]:
    """Return the waits for the first batch of each epoch after the first.

    A recording of a whole training stores them outside the steps, as means of several where there are very many.
    """
    if run.header.mode != "whole":
        return [step.phases_ns[_INPUT] / 1e6 for step in run.steps[1:] if step.first_of_epoch]
    waits = ((stretch.wall_ns / stretch.num_batches / 1e6, stretch.num_batches) for stretch in first_batches(run))
    return [usual_ms + longer_ms for longer_ms, count in waits for _ in range(count)]


_LOADER = LoaderFacts(
    is_training=True, batch_size=32, num_workers=2, persistent_workers=True, iterated_at=Frame("train.py", 30, "main")
)


def _epochs(first_ms: float, length: int, count: int = 5, usual_ms: float = 2.0) -> tuple[Step, ...]:
    """Return epochs of steps with 45 ms of forward pass, the first of each with `first_ms` of input."""
    epoch = [{Phase.INPUT: first_ms if i == 0 else usual_ms, Phase.FORWARD: 45.0} for i in range(length)]
    return steps_of(epoch * count, first_of_epoch=[i % length == 0 for i in range(length * count)])


_APART = tuple(
    Outside(phase=Phase.EPOCH_GAP, start_ns=i * 10**9, wall_ns=300_000_000, num_batches=1) for i in range(1, 5)
)
_WHOLE = Header(script="train.py", mode="whole")

RULE = Rule(
    code="IN016",
    name="slow-first-batch",
    check=check,
    fires_on=(
        example(steps=_epochs(400, 20), loaders=(_LOADER,)),
        example(steps=_epochs(120, 20), loaders=(_LOADER,)),
        example(step_ms=50, n=100, input=2, forward=45, outside=_APART, loaders=(_LOADER,), header=_WHOLE),
    ),
    quiet_on=(
        example(steps=_epochs(400, 20), loaders=(replace(_LOADER, persistent_workers=False),)),
        example(steps=_epochs(400, 20), loaders=(replace(_LOADER, num_workers=0),)),
        example(steps=_epochs(400, 20, usual_ms=12.0), loaders=(_LOADER,)),
        example(steps=_epochs(60, 40), loaders=(_LOADER,)),
        example(steps=_epochs(400, 20, count=2), loaders=(_LOADER,)),
        example(steps=_epochs(3.9, 2, count=30), loaders=(_LOADER,)),
        example(steps=_epochs(400, 20)),
    ),
)
