"""Matrix products in full float32 leave the tensor cores of the device unused.

## What it measures

On CUDA devices with TF32 (Ampere and later), the deep run counts the operations of one forward pass by kind and type.
From these follows the least time that a step's float32 products (attention included) can take: three times those of
the forward pass (backward has two for each; only once where three times is longer than the step, as with frozen
layers), at the peak rate that the device has without tensor cores. It fires when that is at least 10% of the step and
`torch.get_float32_matmul_precision()` is `highest`. It stays quiet where the device's clock is not known, or where the
script chose the precision through torch's newer settings.

## Why it matters

Tensor cores do the same products several times as fast, in TF32 or bfloat16. Convolutions use TF32 by default, matrix
products do not.

## What to do

`torch.set_float32_matmul_precision("high")` once at the start; or forward pass and loss under
`torch.autocast("cuda", dtype=torch.bfloat16)`, which also halves the size of activations.

## When it is wrong

TF32 keeps 10 bits of each factor, bfloat16 7. That may be too few where ill-conditioned systems are solved, physics is
simulated or results are compared with float64.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.operations import TRAINING, counted, share_of
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Arithmetic, Causes, Environment, Run

MIN_SHARE = 0.10


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO010: float32 products cannot take less than a tenth of the step."""
    found = counted(run)
    if found is None or not found.tf32_possible or found.matmul_precision != "highest" or found.float32_flops_s <= 0:
        return None
    in_float32 = sum(share_of(found, kind, "float32") for kind in ("matmul", "attention"))
    forward = sum(found.flops.values()) * in_float32
    least_ms = TRAINING * forward / found.float32_flops_s * 1000
    if least_ms > breakdown.mean_ms:  # no step is shorter than its products: part of them has no backward pass
        least_ms = forward / found.float32_flops_s * 1000
    share = min(1.0, least_ms / breakdown.mean_ms) if breakdown.mean_ms > 0 else 0.0
    if share < MIN_SHARE:
        return None
    return Finding(
        code="CO010",
        name="float32-matmul",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        message=f"At least {of_step(breakdown, min(least_ms, breakdown.mean_ms))} goes to float32 matrix products, "
        f"which this device does at {found.float32_flops_s / 1e12:.0f} TFLOP/s, and several times as fast in TF32. "
        'Call torch.set_float32_matmul_precision("high").',
        evidence=(
            Evidence("float32 products of a forward pass", forward / 1e9, "GFLOP"),
            Evidence("least time of a step", least_ms, "ms"),
        ),
        fixes=("tf32", "bf16-autocast"),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_WIDE = Arithmetic(
    flops={"matmul float32": 5e11, "convolution float32 channels-first": 1e10},
    float32_flops_s=67e12,
    tf32_possible=True,
    matmul_precision="highest",
)


_BF16 = replace(_WIDE, flops={"matmul bfloat16": 5e11})


def _with(found: Arithmetic) -> Causes:
    return Causes(num_steps=40, arithmetic=found)


RULE = Rule(
    code="CO010",
    name="float32-matmul",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_WIDE)),
        example(step_ms=200, forward=60, backward=120, environment=_GPU, causes=_with(_WIDE)),
    ),
    quiet_on=(
        example(step_ms=300, forward=90, backward=180, environment=_GPU, causes=_with(_WIDE)),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_WIDE, matmul_precision="high"))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_WIDE, tf32_possible=False))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_WIDE, float32_flops_s=0.0))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(_BF16)),
        example(step_ms=100, forward=30, backward=60, causes=_with(_WIDE)),
    ),
)
