"""Attention is computed as a product, a softmax and another product, with all the scores in memory between them.

## What it measures

In one forward pass of the deep run on a CUDA device: whether the result of a matrix product goes through a softmax into
another matrix product, at which line, and the share of the operations in such pairs. It fires when that is at least 10%
and forward and backward are at least 30% of the step.

## Why it matters

There are length times length scores for each head. Writing, masking, normalizing and reading them takes far longer than
the products, and they are kept for the backward pass. Fused kernels never write them.

## What to do

Use `torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=..., dropout_p=..., is_causal=...)` instead of
the three operations; in transformers `attn_implementation="sdpa"`. Where the line is that call already, it fell back:
16-bit inputs, and `is_causal=True` instead of a mask, let it choose a fused kernel. `flatout tune` tries the call where
the block of the line shows all steps, and nothing else reads the scores or the weights.

## When it is wrong

Where the attention weights themselves are used (plotted, or in a loss), they have to be computed. The bound counts only
the time of these products; the softmax between them comes on top.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at
from flatout.rules.facts.operations import counted
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Arithmetic, Causes, Environment, Frame, Run
from flatout.units import format_ms, format_share

MIN_OPERATIONS = 0.10
MIN_SHARE = 0.30


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO012: a tenth of the operations are products around a softmax."""
    found = counted(run)
    computing = breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD)
    if found is None or found.attention_at is None or computing < MIN_SHARE:
        return None
    operations = min(1.0, found.attention_flops / sum(found.flops.values()))
    if operations < MIN_OPERATIONS:
        return None
    share = operations * computing
    return Finding(
        code="CO012",
        name="unfused-attention",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=found.attention_at,
        message=f"{format_share(operations)} of the operations of the forward pass are products around a softmax in "
        f"{at(found.attention_at)}, about {format_ms(share * breakdown.mean_ms)} of a step of "
        f"{format_ms(breakdown.mean_ms)} (n={breakdown.measured}). Use scaled_dot_product_attention.",
        evidence=(
            Evidence("share of the operations", operations, ""),
            Evidence("operations of a forward pass", sum(found.flops.values()) / 1e9, "GFLOP"),
        ),
        fixes=(),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_AT = Frame("model.py", 71, "Attention.forward")
_LONG = Arithmetic(flops={"matmul bfloat16": 4e11}, attention_flops=1.2e11, attention_at=_AT)
_FUSED = replace(_LONG, attention_flops=0.0, attention_at=None)
_SHORT = replace(_LONG, attention_flops=2e10)


def _with(found: Arithmetic) -> Causes:
    return Causes(num_steps=40, arithmetic=found)


RULE = Rule(
    code="CO012",
    name="unfused-attention",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_LONG)),
        example(step_ms=100, forward=10, backward=25, input=60, environment=_GPU, causes=_with(_LONG)),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_SHORT)),
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_FUSED)),
        example(step_ms=100, forward=9, backward=20, input=70, environment=_GPU, causes=_with(_LONG)),
        example(step_ms=100, forward=30, backward=60, causes=_with(_LONG)),
    ),
    edits=(("fused-attention",),),
)
