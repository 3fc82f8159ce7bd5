"""Python's garbage collector stops the training again and again.

## What it measures

The time of all collections in the training thread, timed by the collector's own callbacks in the deep run (the second,
instrumented run), against the time of its steps. It fires at 4%. Where nearly all of that time is requested by
explicit calls, the line that requests most is named.

## Why it matters

A full collection visits every object that Python knows of, with the interpreter lock held: 50 to 100 ns for each, so
0.1 s with a million of them. A data set that is a list of tuples or dicts is enough for that.

## What to do

Where a line requests it, remove `gc.collect()` from the loop: it frees reference cycles only, and tensors are hardly
ever in one. Otherwise use `flatout.collect_rarely()`: `gc.freeze()` after the set-up, and a collection every few
hundred steps; better, keep the data in arrays, which are one object.

## When it is wrong

A program that makes many reference cycles with large tensors in them needs its collections.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, CollectorFacts, Frame, Run
from flatout.units import format_seconds

MIN_SHARE = 0.04
MIN_COLLECTIONS = 3


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """HO004: a twenty-fifth of the steps is garbage collection."""
    seen = run.causes.collector if run.causes else CollectorFacts()
    steps_s = sum(run.causes.phases_s.values()) if run.causes else 0.0
    share = min(1.0, seen.seconds / steps_s) if steps_s > 0 else 0.0
    if share < MIN_SHARE or seen.collections < MIN_COLLECTIONS:
        return None
    cause, cure = _cause_and_cure(seen)
    return Finding(
        code="HO004",
        name="garbage-collector",
        phase=Phase.HOST,
        share=share,
        max_speedup=speedup_without(share),
        location=seen.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent in Python's garbage collector: "
        f"{seen.full} full collections, up to {format_seconds(seen.longest_s)} each; {cause}. {cure}.",
        evidence=(
            Evidence("collections", seen.collections, ""),
            Evidence("full ones", seen.full, ""),
            Evidence("longest", seen.longest_s, "s"),
        ),
        fixes=() if seen.called else ("gc-control",),
    )


def _cause_and_cure(seen: CollectorFacts) -> tuple[str, str]:
    if seen.place is not None:
        return f"requested {seen.called} times, mostly by {at(seen.place)}", "Remove such calls"
    if seen.called:
        return f"a library requests {seen.called} of them", "Look for its setting that turns them off"
    return "no call requests them", "Freeze the objects that are alive after set-up, and collect rarely"


def _seen(seconds: float, collections: int, place: Frame | None = None) -> Causes:
    called = collections if place else 0
    found = CollectorFacts(
        collections=collections, full=collections, seconds=seconds, longest_s=0.1, place=place, called=called
    )
    return Causes(collector=found, num_steps=60, phases_s={"host": 1.0, "forward": 5.0})


RULE = Rule(
    code="HO004",
    name="garbage-collector",
    check=check,
    subsumes=("python-work-in-step",),
    edits=(("remove-call", "gc.collect"),),
    fires_on=(
        example(step_ms=100, host=20, forward=80, causes=_seen(0.6, 6)),
        example(step_ms=100, host=20, forward=80, causes=_seen(2.0, 60, Frame("train.py", 61, "train"))),
    ),
    quiet_on=(
        example(step_ms=100, host=20, forward=80, causes=_seen(0.2, 60)),
        example(step_ms=100, host=20, forward=80, causes=_seen(0.6, 2)),
        example(step_ms=100, host=20, forward=80),
    ),
)
