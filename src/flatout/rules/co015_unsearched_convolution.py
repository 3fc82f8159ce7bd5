"""cuDNN picks convolution algorithms by heuristics, where it could time them once and keep the fastest.

## What it measures

The deep run counts the operations of a forward pass by kind, notes the shapes that convolutions meet, and reads
`torch.backends.cudnn.benchmark`. It fires on CUDA devices when the search is off, nothing asks for deterministic
algorithms, at least half of the operations are convolutions, forward and backward are at least half of the step, and at
most one step in twenty meets a new shape.

## Why it matters

Which algorithm is the fastest depends on shape and device, and cuDNN's heuristics have become good. On an H200 (torch
2.11) the search made steps 1.08x as fast for a ResNeXt-50, 1.04x for a ResNet-50, 1.02x for a VGG-11 and 1.00x for a
MobileNet-v2, in bfloat16 and channels-last, 1.00x for a ResNet-18 and a ResNet-50 in float32 (each the least of n=2
times 20 steps, in separate processes). The bound assumes that a tenth of the convolutions' time is saved.

## What to do

Set `torch.backends.cudnn.benchmark = True` once, before the first step: the choice for a shape is kept. The first step
of each shape then takes longer, and workspaces may take some memory.

## When it is wrong

The search may choose another algorithm in each process, so two trainings may differ in rounding. With sizes that keep
changing it costs more than it saves (CO016).
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.operations import counted, share_of
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Arithmetic, Causes, Convolutions, Environment, Run
from flatout.units import format_share

MIN_OPERATIONS = 0.5
MIN_COMPUTING = 0.5
MIN_STEPS = 20
MAX_NEW = 0.05
SAVED = 0.10


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO015: convolutions of steady shapes are half of the operations, and no search is made for them."""
    found, seen = counted(run), run.causes.convolutions if run.causes else None
    if found is None or seen is None or seen.search != "off":
        return None
    steady = seen.steps >= MIN_STEPS and seen.new_steps <= MAX_NEW * seen.steps
    convolving = share_of(found, "convolution")
    computing = breakdown.share(Phase.FORWARD) + breakdown.share(Phase.BACKWARD)
    if not steady or convolving < MIN_OPERATIONS or computing < MIN_COMPUTING:
        return None
    share = SAVED * computing * convolving
    return Finding(
        code="CO015",
        name="unsearched-convolution",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        message=f"{format_share(convolving)} of the operations of the forward pass are convolutions whose shapes stay "
        f"the same (n={seen.steps} steps), and cuDNN does not search for their fastest algorithms: a search may save "
        f"up to {of_step(breakdown, share * breakdown.mean_ms)}. Set torch.backends.cudnn.benchmark = True.",
        evidence=(
            Evidence("share of the operations", convolving, ""),
            Evidence("steps with a new shape", seen.new_steps, ""),
            Evidence("steps looked at", seen.steps, ""),
        ),
        fixes=("cudnn-search",),
    )


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_IMAGES = Arithmetic(flops={"convolution float32 channels-first": 4e11, "matmul float32": 1e9})
_STEADY = Convolutions(steps=40, new_steps=1, new_s=0.09, known_s=0.09)


def _with(seen: Convolutions | None, found: Arithmetic = _IMAGES) -> Causes:
    return Causes(num_steps=40, arithmetic=found, convolutions=seen)


RULE = Rule(
    code="CO015",
    name="unsearched-convolution",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, environment=_GPU, causes=_with(_STEADY)),
        example(step_ms=100, forward=20, backward=35, input=40, environment=_GPU, causes=_with(_STEADY)),
    ),
    quiet_on=(
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_STEADY, search="on"))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_STEADY, search="deterministic"))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_STEADY, new_steps=6))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(_STEADY, Arithmetic(flops={"matmul": 1e9}))),
        example(step_ms=100, forward=40, input=50, environment=_GPU, causes=_with(_STEADY)),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(None)),
        example(step_ms=100, forward=90, causes=_with(_STEADY)),
    ),
)
