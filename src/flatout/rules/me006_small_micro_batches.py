"""One step's gradients come from many micro-batches, each far smaller than what the machine takes at once.

## What it measures

The deep run (the second, instrumented run) keeps the inputs of one step in which the model is called from one line at
least four times, each time followed by a backward pass. After the last step, a copy of the model runs forward and
backward on these micro-batches one by one, and on all of them put together (as many as fit into a quarter of the free
memory), in turn. The bound is the time saved of forward and backward, of the loss between them, which is then computed
once, and where a loader without workers gives the micro-batches, of what it does besides fetching samples. It fires at
10% of the step. It stays quiet where rows depend on each other: outputs of the copy must be the same either way, layers
that use batch statistics are left out, and so are models that get their own outputs back, as in truncated
backpropagation. Models with hooks, compiled models, autocast and several ranks are not tried.

## Why it matters

Every call of the model and every backward pass has fixed costs: some 5 to 20 us for each operation on a CPU, as much on
the host of a GPU. For a micro-batch of a few rows they are nearly all of the time. Gradients that are added up are
those of the whole batch, up to rounding.

## What to do

Give the model the whole batch, or the largest part of it that memory allows, and take fewer backward passes. Where the
loader makes the micro-batches, raise its batch size and accumulate over fewer of them.

## When it is wrong

A loss that compares the rows of a micro-batch with each other (contrastive losses) is another one for the whole batch.
Gradients that are read or clipped after each micro-batch, as in differentially private training, need the single
passes; `torch.func.vmap` does them at once. A mean over tokens weighs micro-batches of different length differently.
"""

import ast
from statistics import median

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.source.source_code import Function, ancestors
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Frame, LoaderFacts, MicroBatches, Run
from flatout.units import format_ms

MIN_SHARE = 0.10
LEAST = 3  # passes of each kind


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """ME006: a tenth of the step goes where micro-batches are put together."""
    found = run.causes.micro_batches if run.causes else None
    if found is None or found.n < LEAST or found.apart_s <= 0 or found.joined < 2:
        return None
    saved = 1 - found.together_s / found.apart_s
    passes = breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD)
    share = passes * saved + (_losses(run, breakdown) + _loading(run, breakdown, found)) * (1 - 1 / found.joined)
    if saved <= 0 or share < MIN_SHARE:
        return None
    place = _loop(found)
    step_ms = [1000 * found.count * each for each in (found.apart_s, found.together_s)]
    parts = "all" if found.joined >= found.count else f"{found.joined} at a time"
    return Finding(
        code="ME006",
        name="small-micro-batches",
        phase=max((Phase.FORWARD, Phase.BACKWARD), key=breakdown.share),
        share=share,
        max_speedup=speedup_without(share),
        location=place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is lost to small micro-batches: {found.count} of "
        f"{found.rows} rows each{f', in {at(place)}' if place else ''}. Forward and backward of all take "
        f"{format_ms(step_ms[0])} one by one and {format_ms(step_ms[1])} with {parts} put together (n={found.n}). Give "
        "the model larger parts of the batch, and make fewer backward passes: gradients are the same.",
        evidence=(
            Evidence("micro-batches in a step", found.count, ""),
            Evidence("rows of one", found.rows, ""),
            Evidence("one by one", step_ms[0], "ms"),
            Evidence("put together", step_ms[1], "ms"),
            Evidence("passes of each kind", found.n, ""),
        ),
        fixes=(),
    )


def _losses(run: Run, breakdown: Breakdown) -> float:
    """Return the share of the step between forward and backward."""
    steps = run.steps[breakdown.warmup :]
    whole = sum(step.wall_ns for step in steps)
    return sum(step.host_parts_ns[1] for step in steps) / whole if whole else 0.0


def _loading(run: Run, breakdown: Breakdown, found: MicroBatches) -> float:
    """Return the share of the step that a loader without workers takes for micro-batches besides fetching samples."""
    loader = training_loader(run)
    if loader is None or loader.num_workers > 0 or loader.wait_s <= 0 or loader.sample_s <= 0 or not run.steps:
        return 0.0
    if median(step.num_batches for step in run.steps) < found.count:
        return 0.0
    return breakdown.share(Phase.INPUT) * max(0.0, 1 - loader.sample_s / loader.wait_s)


def _loop(found: MicroBatches) -> Frame | None:
    """Return the line of the loop over the micro-batches, or the call of the model where the loader's loop is that."""
    for frame in found.stack:
        for node in ancestors(frame):
            if isinstance(node, Function):
                break
            if isinstance(node, ast.For | ast.While):
                return found.stack[0] if _steps(node) else Frame(frame.file, node.lineno, frame.function)
    return found.stack[0] if found.stack else None


def _steps(loop: ast.For | ast.While) -> bool:
    """Return whether the optimizer makes its step inside of a loop."""
    calls = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr == "step" for call in calls)


_MEASURED = MicroBatches(
    count=16, rows=4, joined=16, n=7, apart_s=0.002, together_s=0.0004, stack=(Frame("train.py", 30, "train"),)
)


def _with(**detail: float) -> Causes:
    values = {name: getattr(_MEASURED, name) for name in MicroBatches.__slots__}
    return Causes(num_steps=60, micro_batches=MicroBatches(**{**values, **detail}))


_LOADER = LoaderFacts(is_training=True, batch_size=4, sample_s=0.0001, wait_s=0.001, fetches=100)

RULE = Rule(
    code="ME006",
    name="small-micro-batches",
    check=check,
    settings={
        "lightning": "`Trainer(accumulate_grad_batches=...)`, and the batch size of the DataLoader",
        "transformers": "`TrainingArguments(per_device_train_batch_size=..., gradient_accumulation_steps=...)`",
    },
    fires_on=(
        example(step_ms=40, forward=14, backward=18, causes=_with()),
        example(step_ms=40, forward=4, backward=4, causes=_with(together_s=0.0006)),
        example(step_ms=40, input=20, forward=2, backward=2, num_batches=16, loaders=(_LOADER,), causes=_with()),
    ),
    quiet_on=(
        example(step_ms=40, forward=14, backward=18, causes=_with(together_s=0.0018)),
        example(step_ms=40, forward=14, backward=18, causes=_with(n=1)),
        example(step_ms=40, forward=2, backward=2, causes=_with()),
        example(step_ms=40, input=20, forward=2, backward=2, loaders=(_LOADER,), causes=_with()),
        example(step_ms=40, forward=14, backward=18, causes=Causes(num_steps=60)),
    ),
    no_cure="Fewer and larger backward passes are other passes, which a trial cannot hold against the script's own.",
)
