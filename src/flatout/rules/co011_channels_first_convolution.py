"""Convolutions get images in channels-first order, but their kernels work in channels-last order.

## What it measures

On CUDA devices, the deep run counts the operations of one forward pass by kind, type and layout. The finding is shown
when at least half of them are 2-D convolutions in float16 or bfloat16 whose input is channels-first, and forward and
backward are at least 30% of the step. On the CPU, it times forward and backward of two copies of the model after its
last step, one of them channels-last, alternating; the finding is shown when that saves 8% of the step.

## Why it matters

The fast kernels are written for channels-last: each convolution converts its input, and its output back. Measured by
others with 16-bit ResNets: from 2,764 to 3,482 images/s (RTX 3090), from 1,450 to 2,150 (A100). The bound takes the
latter: a third of the computing time is saved. On the CPU, where oneDNN does the same, the bound is what was measured.

## What to do

`model.to(memory_format=torch.channels_last)`, and the same for the images.

## When it is wrong

Networks with group normalization can become slower (ResNet-50: from 532 to 482 images/s) and are not reported.
Depthwise convolutions gain nothing.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.operations import counted, share_of
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Arithmetic, Causes, Environment, Frame, LayoutTrial, ModelFacts, Run
from flatout.units import format_ms, format_share

MIN_OPERATIONS = 0.5
MIN_SHARE = 0.30
MIN_GAIN = 0.08  # of the step, as measured on the CPU
LEAST_PASSES = 2
SAVED = 0.33
SLOWER_WITH = ("GroupNorm",)


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO011: half of the operations are 16-bit convolutions of channels-first images, or a trial was faster without."""
    trial = run.causes.layout_trial if run.causes else None
    if trial is not None:
        return _tried(trial, breakdown)
    found = counted(run)
    if found is None or any(name in model.module_types for model in run.models for name in SLOWER_WITH):
        return None
    first = sum(share_of(found, "convolution", dtype, "channels-first") for dtype in ("float16", "bfloat16"))
    computing = breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD)
    if first < MIN_OPERATIONS or computing < MIN_SHARE:
        return None
    share = SAVED * computing * first
    return Finding(
        code="CO011",
        name="channels-first-convolution",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        message=f"{format_share(first)} of the operations of the forward pass are 16-bit convolutions of images in "
        f"channels-first order, and converting them may take up to {of_step(breakdown, share * breakdown.mean_ms)}. "
        "Use memory_format=torch.channels_last for model and images.",
        evidence=(
            Evidence("share of the operations", first, ""),
            Evidence("operations of a forward pass", sum(found.flops.values()) / 1e9, "GFLOP"),
        ),
        fixes=("channels-last",),
    )


def _tried(trial: LayoutTrial, breakdown: Breakdown) -> Finding | None:
    """Return what a trial on the CPU showed."""
    if trial.n < LEAST_PASSES or trial.first_s <= 0:
        return None
    saved = 1 - trial.last_s / trial.first_s
    share = saved * (breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD))
    if share < MIN_GAIN:
        return None
    called = f", called in {at(trial.place)}," if trial.place else ""
    return Finding(
        code="CO011",
        name="channels-first-convolution",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=trial.place,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is lost because the images of {trial.model}{called} "
        f"are in channels-first order: forward and backward take {format_ms(trial.first_s * 1e3)}, and "
        f"{format_ms(trial.last_s * 1e3)} channels-last (n={trial.n}). "
        "Use memory_format=torch.channels_last for model and images.",
        evidence=(
            Evidence("a pass channels-first", trial.first_s * 1e3, "ms"),
            Evidence("channels-last", trial.last_s * 1e3, "ms"),
        ),
        fixes=("channels-last",),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_IMAGES = Arithmetic(flops={"convolution bfloat16 channels-first": 4e11, "matmul bfloat16": 1e9})
_LAST = Arithmetic(flops={"convolution bfloat16 channels-last": 4e11, "matmul bfloat16": 1e9})
_FLOAT = Arithmetic(flops={"convolution float32 channels-first": 4e11})
_STEM = replace(_IMAGES, flops={"convolution bfloat16 channels-first": 1e10, "matmul bfloat16": 4e11})
_GROUPS = ModelFacts(name="ResNet", module_types={"Conv2d": 53, "GroupNorm": 53})


def _with(found: Arithmetic) -> Causes:
    return Causes(num_steps=40, arithmetic=found)


_TRIAL = LayoutTrial(model="Net", place=Frame("train.py", 31, "train"), n=7, first_s=0.04, last_s=0.03)


def _measured(trial: LayoutTrial) -> Causes:
    return Causes(num_steps=40, layout_trial=trial)


RULE = Rule(
    code="CO011",
    name="channels-first-convolution",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_IMAGES)),
        example(step_ms=100, forward=10, backward=25, input=60, environment=_GPU, causes=_with(_IMAGES)),
        example(step_ms=50, forward=16, backward=32, causes=_measured(_TRIAL)),
    ),
    quiet_on=(
        example(step_ms=50, forward=16, backward=32, causes=_measured(replace(_TRIAL, last_s=0.038))),
        example(step_ms=50, forward=16, backward=32, causes=_measured(replace(_TRIAL, n=1))),
        example(step_ms=50, forward=4, backward=8, input=38, causes=_measured(_TRIAL)),
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_LAST)),
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_FLOAT)),
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_STEM)),
        example(step_ms=100, forward=9, backward=20, input=70, environment=_GPU, causes=_with(_IMAGES)),
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_IMAGES), models=(_GROUPS,)),
        example(step_ms=100, forward=30, backward=60, causes=_with(_IMAGES)),
    ),
)
