"""The training step waits for its next batch.

## What it measures

The share of each steady step that the training loop spends inside `next(loader)`, on the clock of the main thread. It
fires at 10% of the step. Where steps were also timed while one fixed batch was replayed, they must be shorter by at
least as much, by the lower end of the interval; where that interval is too wide to tell, the wait must be 20%. Where
another IN finding explains at least half of the share, only that one is listed, because it names the cause.

## Why it matters

While the loop waits, the model does not train. The share also bounds the gain: at 62%, no change to the input can make
the step more than 2.6 times as fast. Tools draw the line between 5% (TensorBoard's plugin) and 20% (loadtune).

## What to do

Read the other IN findings first. If there are none: move work that is the same every epoch out of `__getitem__`, do
the rest for a whole batch at once, then use worker processes (`num_workers`), then look at where the files are stored.

## When it is wrong

Libraries that prefetch on their own threads (Accelerate, Lightning) hide the wait inside another call. The first epoch
after a restart reads files from disk that later epochs find in memory.
"""

from dataclasses import replace

from flatout.analysis.headroom_stages import gain_between
from flatout.analysis.rollouts import acts_in_many_environments
from flatout.rules.core.bounds import in_mean_steps, speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.acting_lines import mostly_acts
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.manual_loading import plays_most
from flatout.schema.facts import HELD_INPUT
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run

MIN_SHARE = 0.10


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN001: at least a tenth of the step passes in `next(loader)`, and disappears when a batch is held."""
    share = breakdown.share(Phase.INPUT)
    if share < MIN_SHARE or not _goes(run, breakdown, headroom) or acts_in_many_environments(run) or mostly_acts(run):
        return None
    if plays_most(run):
        return None
    loader = training_loader(run)
    ms = breakdown.ms(Phase.INPUT)
    return Finding(
        code="IN001",
        name="input-bound",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_without(share),
        location=loader.iterated_at if loader else None,
        message=f"{of_step(breakdown, ms)} is spent waiting for the next batch. Make a batch cheaper to build, or "
        "build it while the previous step runs.",
        evidence=(Evidence("wait", ms, "ms"), Evidence("step", breakdown.mean_ms, "ms")),
        fixes=("compiled-input", "loader-workers", "core-split", "device-prefetch", "device-resident-input"),
    )


def _goes(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> bool:
    """Return whether holding a batch surely saves a tenth of the step; if that is unknown, whether a fifth waits."""
    held = gain_between(headroom, "", HELD_INPUT)
    if held is None:
        return True
    if not held.sure:
        return breakdown.share(Phase.INPUT) >= 2 * MIN_SHARE
    ceiling = next(each for each in headroom if each.ceiling == HELD_INPUT)
    return 1 - 1 / max(1.0, held.low * in_mean_steps(run, breakdown, ceiling)) >= MIN_SHARE


_LOADER = LoaderFacts(name="Pictures", is_training=True, batch_size=64, iterated_at=Frame("train.py", 40, "train"))
_HELD = Ceiling(ceiling=HELD_INPUT, median_ms=19.5, speedup=2.56, low=2.5, high=2.7, num_pairs=8)

RULE = Rule(
    code="IN001",
    name="input-bound",
    check=check,
    general=True,
    fires_on=(
        example(step_ms=100, input=62, forward=20, loaders=(_LOADER,), headroom=(_HELD,)),
        example(step_ms=50, input=5.5, forward=30),
        example(step_ms=50, input=11.0, forward=30, headroom=(replace(_HELD, speedup=1.3, low=0.9, high=1.8),)),
    ),
    quiet_on=(
        example(step_ms=100, input=9.9, forward=60),
        example(step_ms=3, forward=2),
        example(step_ms=50, input=5.5, forward=30, headroom=(replace(_HELD, speedup=1.15, low=1.07, high=1.25),)),
        example(step_ms=50, input=9.0, forward=30, headroom=(replace(_HELD, speedup=1.3, low=0.9, high=1.8),)),
    ),
)
