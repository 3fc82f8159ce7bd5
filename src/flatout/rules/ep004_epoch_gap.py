"""Between two epochs the script does something else for a noticeable time.

## What it measures

The time between the last step of an epoch and the first of the next that is neither validation nor a checkpoint, nor
the restart of loader workers (that is IN009), as a share of the recording without start-up. Where no epoch ended in
that time, the deep run (the second, instrumented run) ends one early, and the share is that of an epoch as long as its
loader says. It fires at 7%. Where half of it is Python's garbage collector, timed by its callbacks in the deep run, the
finding says so. That is known only for scripts with a loader: without one, the end of an epoch is recognized later.

## Why it matters

It recurs with every epoch: rebuilding a dataset or an index, shuffling a list, plotting, collecting garbage, gathering
metrics over all samples.

## What to do

Do work that never changes only once, move work into the dataset's constructor, draw plots every N epochs. Count with
`collections.Counter`, and look up in sets and dictionaries: `labels.count(x)`, `words.index(x)` and `x in seen` go
through the whole list each time (`flatout tune` tries that where the list does not change meanwhile). A loop that
computes with one row of a tensor in each turn (the nearest centre of each sample) is one operation on all of them. If
the time is automatic garbage collection (the script does not call `gc.collect()` itself), call
`flatout.collect_rarely()` once before the training loop.

## When it is wrong

If the recorded epochs are short, a gap looks large: compare their length with that of the real training.
"""

import dataclasses

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import goes_to
from flatout.rules.facts.epoch_ends import recorded, seen_once
from flatout.rules.facts.gaps import (
    between_epochs,
    collected_share,
    num_pauses,
    own_code,
    own_gap_at_end_s,
    own_gap_s,
)
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.user_lines import Hotspot, costs, hottest
from flatout.rules.facts.validation import what_calls_the_model
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, CollectorFacts, LoaderFacts, Run
from flatout.units import format_share

MIN_SHARE = 0.07
COLLECTING = 0.5  # of the gap


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """EP004: the script's own work between epochs takes 7% of the loop."""
    loader = training_loader(run)
    gaps = between_epochs(run)
    found = recorded(breakdown, own_gap_s(run, loader), num_pauses(run, gaps)) if gaps else None
    found = found or seen_once(run, breakdown, own_gap_at_end_s(run, loader))
    if found is None or found.share < MIN_SHARE:
        return None
    lines = own_code(run, loader)
    spot = hottest(lines, among=costs(run, Phase.EPOCH_GAP))
    calls = what_calls_the_model(run, spot, lines) if spot else None
    spot = dataclasses.replace(spot, place=calls, inner=None, running="") if spot and calls else spot
    collected, asked = collected_share(run)
    asks = run.causes.collector.between_at if run.causes and _is_asked_for(collected, asked) else None
    place = asks or (spot.place if spot else None)  # the loop that comes next has done nothing slow
    return Finding(
        code="EP004",
        name="epoch-gap",
        phase=Phase.EPOCH_GAP,
        share=found.share,
        max_speedup=speedup_without(found.share),
        location=place,
        message=f"{found.words} is spent between epochs{f', most of it in {goes_to(spot)}' if spot else ''}"
        f"{_collecting(collected)}. {_cure(collected, asked, spot)}.",
        evidence=(
            Evidence("one gap", found.seconds / found.count, "s"),
            Evidence("gaps", found.count, ""),
            *((Evidence("share in the garbage collector", collected, ""),) if collected else ()),
        ),
        fixes=("compiled-python", "kept-json"),
    )


def _collecting(share: float) -> str:
    return f", {format_share(share)} of it in Python's garbage collector" if share >= COLLECTING else ""


def _is_asked_for(collected: float, asked: float) -> bool:
    return collected >= COLLECTING and 2 * asked >= collected


def _cure(collected: float, asked: float, spot: Hotspot | None) -> str:
    if collected < COLLECTING:
        once = "do work that is the same in every epoch only once"
        by_item = spot is not None and (not spot.running or spot.running.startswith("numpy"))
        whole = "It is Python that works item by item: use operations on whole arrays, and "
        return f"{whole}{once}" if by_item else f"{once[0].upper()}{once[1:]}"
    if _is_asked_for(collected, asked):
        return "Remove the call that requests it"
    return "Freeze the objects that are alive after set-up, and collect rarely"


_LINES = (line(0.6, ("data.py", 90, "rebuild_index"), ("train.py", 20, "main"), phase=Phase.EPOCH_GAP),)
_WORKERS = LoaderFacts(is_training=True, num_workers=2, epochs_started=3, start_s=0.9)
_COLLECTED = Causes(collector=CollectorFacts(between_s=0.5), num_steps=100, between_epochs_s=0.6)

RULE = Rule(
    code="EP004",
    name="epoch-gap",
    check=check,
    edits=(
        ("remove-call", "gc.collect"),
        ("state-copies",),
        ("list-lookups",),
        ("element-writes",),
        ("builtin-sum",),
    ),
    fires_on=(
        example(step_ms=50, n=100, forward=40, outside_s={Phase.EPOCH_GAP: 0.6}, lines=_LINES),
        example(step_ms=50, n=100, forward=40, outside_s={Phase.EPOCH_GAP: 0.6}, lines=_LINES, loaders=(_WORKERS,)),
        example(step_ms=50, n=100, forward=40, outside_s={Phase.EPOCH_GAP: 0.6}, causes=_COLLECTED),
    ),
    quiet_on=(
        example(step_ms=50, n=100, forward=40, outside_s={Phase.EPOCH_GAP: 0.37}, lines=_LINES),
        example(step_ms=50, n=100, forward=40, outside_s={Phase.EPOCH_GAP: 0.6}, loaders=(_WORKERS,)),
        example(step_ms=50, n=100, forward=40),
    ),
)
