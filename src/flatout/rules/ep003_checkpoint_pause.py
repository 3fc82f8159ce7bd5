"""The training stops while checkpoints are written.

## What it measures

The time in `torch.save` and the like, inside and between the steps, as a share of the recording without start-up. It
fires at 5%.

## Why it matters

Serializing and writing happen on the main thread, so no training happens meanwhile. The share is what a loop without
the pause would save.

## What to do

Save less often. Copy the weights to host memory, and write them on a separate thread
(`torch.distributed.checkpoint.async_save` does this). Save to a local disk first. Leave out what can be rebuilt.

## When it is wrong

flatout stops after some steps: for a script that saves every few minutes, a short recording may show one save, or
none. `flatout diagnose --whole` sees all of them.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example, line, steps_of
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_loop, within
from flatout.rules.facts.user_lines import costs, hottest
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import STEP_PHASES, Phase
from flatout.schema.run import Run

MIN_SHARE = 0.05
LONG_ENOUGH_NS = 1_000_000  # shorter than a millisecond in a step is not a save


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """EP003: saving takes a twentieth of the loop."""
    column = STEP_PHASES.index(Phase.CHECKPOINT)
    means = [step.phases_ns[column] * run.steps_each for step in run.steps]  # an entry may be the mean of several
    pauses = [pause for pause in means if pause >= LONG_ENOUGH_NS]
    pauses += [stretch.wall_ns for stretch in run.outside if stretch.phase == Phase.CHECKPOINT]
    spent_s = min(sum(pauses) / 1e9, breakdown.loop_s)
    share = breakdown.loop_share(spent_s)
    if not pauses or share < MIN_SHARE:
        return None
    lines = costs(run, Phase.CHECKPOINT)
    spot = hottest(lines, among=lines)
    return Finding(
        code="EP003",
        name="checkpoint-pause",
        phase=Phase.CHECKPOINT,
        share=share,
        max_speedup=speedup_without(share),
        location=spot.place if spot else None,
        message=f"{of_loop(breakdown, spent_s, len(pauses))} is spent saving checkpoints while training stands still"
        f"{f', in {within(spot)}' if spot else ''}. Save less often, or write a copy on a thread.",
        evidence=(
            Evidence("one checkpoint", spent_s / len(pauses), "s"),
            Evidence("checkpoints", len(pauses), ""),
        ),
        fixes=("async-checkpoint",),
    )


_LINES = (line(0.5, ("train.py", 80, "save"), phase=Phase.CHECKPOINT, leaf="torch", leaf_function="save"),)
_EVERY_TENTH = steps_of([{Phase.FORWARD: 40, Phase.CHECKPOINT: 30 * (i % 10 == 9)} for i in range(100)])

RULE = Rule(
    code="EP003",
    name="checkpoint-pause",
    check=check,
    settings={
        "lightning": "`ModelCheckpoint(every_n_epochs=...)`, or the plugin `AsyncCheckpointIO()` from Lightning 2.6 on",
        "fabric": "fewer calls of `fabric.save`",
        "transformers": '`TrainingArguments(save_strategy="steps", save_steps=...)`',
        "accelerate": "fewer calls of `accelerator.save_state`",
    },
    fires_on=(
        example(step_ms=50, n=100, forward=40, outside_s={Phase.CHECKPOINT: 0.5}, lines=_LINES),
        example(steps=_EVERY_TENTH),
    ),
    quiet_on=(
        example(step_ms=50, n=100, forward=40, outside_s={Phase.CHECKPOINT: 0.26}, lines=_LINES),
        example(step_ms=50, n=100, forward=40),
    ),
)
