"""16-bit matrices have sizes that are not multiples of eight, which tensor cores cannot read well.

## What it measures

The deep run looks at every product of 16-bit matrices in one forward pass. A product counts when its inner size or its
number of columns is not a multiple of eight: rows in memory then do not begin at multiples of 16 bytes. It fires on
CUDA devices when such products are at least 20% of all operations, and forward and backward half of the step.

## Why it matters

Kernels that load 16 bytes at once cannot be used, and slower ones take their place. nanoGPT's author reported (February
2023) that a vocabulary of 50,304 tokens instead of 50,257 made its training about 25% faster. Two layers of width 768
and such a vocabulary, 8 x 1,024 tokens in bfloat16, took 10.8 ms a step instead of 23.5 on an H200 (2.19x, n=3 rounds,
torch 2.11; `benchmarks/gpu_faults.py`). The bound assumes that four fifths of these products' time is saved.

## What to do

Round the size up to a multiple of 64 and leave the rest unused: of the vocabulary, the classes, the features of the
input, the width of a layer.

## When it is wrong

A layer of another size has other weights: old checkpoints no longer fit. Newer libraries pad such matrices themselves.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.operations import counted
from flatout.rules.facts.setting_trials import computing
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Arithmetic, Causes, Environment, Frame, Run
from flatout.units import format_share

MIN_OPERATIONS = 0.2
MIN_COMPUTING = 0.5
SAVED = 0.8  # 0.79 in the training that was measured


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO017: a fifth of the operations are 16-bit products of odd sizes."""
    found = counted(run)
    whole = sum(found.flops.values()) if found is not None else 0.0
    if found is None or whole <= 0 or len(found.unaligned_sizes) != 3:
        return None
    fraction = min(1.0, found.unaligned_flops / whole)
    if fraction < MIN_OPERATIONS or breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD) < MIN_COMPUTING:
        return None
    share = SAVED * fraction * (computing(breakdown) + breakdown.share(Phase.SYNC))  # where a busy device is waited for
    rows, inner, columns = found.unaligned_sizes
    where = f", in {at(found.unaligned_at)}" if found.unaligned_at else ""
    return Finding(
        code="CO017",
        name="unaligned-product",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=found.unaligned_at,
        message=f"{format_share(fraction)} of the operations of the forward pass are 16-bit products with sizes that "
        f"are not multiples of eight, the largest {rows} x {inner} by {inner} x {columns}{where}. That may cost up to "
        f"{of_step(breakdown, share * breakdown.mean_ms)}. Round these sizes up to multiples of 64.",
        evidence=(
            Evidence("share of the operations", fraction, ""),
            Evidence("inner size", inner, ""),
            Evidence("columns", columns, ""),
        ),
        fixes=(),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_HEAD = Arithmetic(
    flops={"matmul bfloat16": 4e11, "attention bfloat16": 5e10},
    unaligned_flops=1.5e11,
    unaligned_at=Frame("model.py", 80, "GPT.forward"),
    unaligned_sizes=(8192, 768, 50257),
)


def _with(found: Arithmetic) -> Causes:
    return Causes(num_steps=40, arithmetic=found)


RULE = Rule(
    code="CO017",
    name="unaligned-product",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_HEAD)),
        example(
            step_ms=100, forward=20, backward=35, environment=_GPU, causes=_with(replace(_HEAD, unaligned_at=None))
        ),
    ),
    quiet_on=(
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_HEAD, unaligned_flops=4e10))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(Arithmetic(flops={"matmul bfloat16": 4e11}))),
        example(step_ms=100, forward=30, input=60, environment=_GPU, causes=_with(_HEAD)),
        example(step_ms=100, forward=90, causes=_with(_HEAD)),
    ),
    no_cure="A larger vocabulary or layer is another model, and its checkpoints have other shapes.",
)
