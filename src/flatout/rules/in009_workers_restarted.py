"""Every epoch ends all loader workers and starts new ones.

## What it measures

For a loader with workers and without `persistent_workers`, over the epochs after the first: the time in `iter(loader)`,
or the time between epochs that is neither the script's own code nor waiting for other ranks, whichever is larger, plus
how much longer the first batch of an epoch took than others. It fires when that is at least 5% of the recorded loop.

## Why it matters

New processes import, copy or unpickle the dataset and fill their queue before the first batch comes. Measured with two
workers: 0.07 to 0.20 s an epoch by fork; several seconds where workers are spawned and import torch again.

## What to do

`DataLoader(..., persistent_workers=True)`. It draws one random number fewer for each epoch after the first, so
shuffling differs from the second epoch on. Longer epochs (a sampler that repeats the data) make the pause rarer.

## When it is wrong

Workers that must see a dataset changed between epochs need the restart. When only the first seconds of a long epoch
were recorded there was no restart to measure, and the rule stays quiet.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_loop
from flatout.rules.facts.gaps import restart_s, restarting
from flatout.rules.facts.loader_facts import training_loader
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Frame, LoaderFacts, Run

MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN009: restarting workers takes a twentieth of the loop."""
    loader = training_loader(run)
    if loader is None:
        return None
    spent_s = min(restart_s(run, breakdown, loader), breakdown.loop_s)
    share = breakdown.loop_share(spent_s)
    if share < MIN_SHARE:
        return None
    restarts = loader.epochs_started - 1
    others = [one for one in restarting(run) if one is not loader and one.epochs_started]
    whose = f"the workers of {1 + len(others)} loaders, {loader.num_workers} of this one,"
    if not others:
        whose = f"the loader's {loader.num_workers} workers"
    return Finding(
        code="IN009",
        name="workers-restarted",
        phase=Phase.EPOCH_GAP,
        share=share,
        max_speedup=speedup_without(share),
        location=loader.created_at,
        message=f"{of_loop(breakdown, spent_s, restarts)} is spent restarting {whose} between epochs. Keep them: "
        "persistent_workers=True.",
        evidence=(
            Evidence("one restart", spent_s / restarts, "s"),
            Evidence("restarts", restarts, ""),
            Evidence("workers", loader.num_workers, ""),
        ),
        fixes=("persistent-workers", "compiled-input"),
    )


_LOADER = LoaderFacts(
    is_training=True, num_workers=2, epochs_started=4, start_s=0.8, created_at=Frame("train.py", 12, "main")
)

RULE = Rule(
    code="IN009",
    name="workers-restarted",
    check=check,
    settings={
        "lightning": "`persistent_workers=True` of the same DataLoader",
        "transformers": "`TrainingArguments(dataloader_persistent_workers=True)`",
    },
    fires_on=(
        example(step_ms=50, n=100, forward=40, outside_s={Phase.EPOCH_GAP: 0.7}, loaders=(_LOADER,)),
        example(step_ms=50, n=100, outside_s={Phase.EPOCH_GAP: 0.9}, loaders=(replace(_LOADER, start_s=0.0),)),
    ),
    quiet_on=(
        example(step_ms=50, n=260, forward=40, outside_s={Phase.EPOCH_GAP: 0.7}, loaders=(_LOADER,)),
        example(step_ms=50, outside_s={Phase.EPOCH_GAP: 0.7}, loaders=(replace(_LOADER, persistent_workers=True),)),
        example(step_ms=50, outside_s={Phase.EPOCH_GAP: 0.7}, loaders=(replace(_LOADER, epochs_started=1),)),
    ),
)
