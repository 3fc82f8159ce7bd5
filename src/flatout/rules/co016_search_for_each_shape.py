"""cuDNN tries its algorithms for convolutions again and again, because their shapes keep changing.

## What it measures

With `torch.backends.cudnn.benchmark` on: how many steps of the deep run meet a convolution of a shape that no step
before them had, and how much longer forward, backward and optimizer take in these than in the others. It fires on CUDA
devices when that is at least 5% of the step, with at least eight steps of each kind. Where nearly no shape comes twice
there is nothing to compare with; then it says so.

## Why it matters

A search runs every algorithm there is, several times, for each convolution of that shape, and each time the memory for
its workspace. It pays when the shape returns many times.

## What to do

`torch.backends.cudnn.benchmark = False`; or bring images to a few sizes (buckets, multiples of 32 or 64), and drop the
last, smaller batch.

## When it is wrong

In a training with some hundred shapes all of them are known after an epoch: what a few steps at the start show does not
last. Shapes that are new may also be larger, and take longer for that.
"""

from dataclasses import replace

from flatout.rules.bounds import speedup_without
from flatout.rules.example import example
from flatout.rules.prices import computing
from flatout.rules.rule import Rule
from flatout.rules.sentence import of_step
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Convolutions, Environment, Run

MIN_SHARE = 0.05
MIN_STEPS = 8
NEARLY_ALL = 0.9
MIN_LOOKED_AT = 20


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO016: searching costs a twentieth of the step, or nearly every step searches."""
    seen = run.causes.convolutions if run.causes else None
    if seen is None or seen.search != "on" or run.environment.device_kind != "cuda" or seen.new_steps < MIN_STEPS:
        return None
    unknown = seen.steps >= MIN_LOOKED_AT and seen.new_steps >= NEARLY_ALL * seen.steps
    share = 0.0 if unknown else _share(seen) * (computing(breakdown) + breakdown.share(Phase.SYNC))
    if not unknown and (share < MIN_SHARE or seen.steps - seen.new_steps < MIN_STEPS):
        return None
    cost = f"That is {of_step(breakdown, share * breakdown.mean_ms)}. " if share else "What that costs is not known. "
    return Finding(
        code="CO016",
        name="search-for-each-shape",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        message=f"cuDNN searches for algorithms in {seen.new_steps} of n={seen.steps} steps, since their convolutions "
        f"have shapes that were not there before. {cost}"
        "Set torch.backends.cudnn.benchmark = False, or bring images to a few sizes.",
        evidence=(
            Evidence("steps with a new shape", seen.new_steps, ""),
            Evidence("such a step", seen.new_s * 1e3, "ms"),
            Evidence("a step without", seen.known_s * 1e3, "ms"),
        ),
        fixes=(),
    )


def _share(seen: Convolutions) -> float:
    """Return the share of the computing that goes when steps with new shapes take as long as the others."""
    known = seen.steps - seen.new_steps
    whole = seen.new_s * seen.new_steps + seen.known_s * known
    return max(0.0, seen.new_s - seen.known_s) * seen.new_steps / whole if whole > 0 else 0.0


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_CHANGING = Convolutions(search="on", steps=40, new_steps=16, new_s=0.3, known_s=0.09)


def _with(seen: Convolutions | None) -> Causes:
    return Causes(num_steps=40, convolutions=seen)


RULE = Rule(
    code="CO016",
    name="search-for-each-shape",
    check=check,
    preview=True,
    fires_on=(
        example(step_ms=170, forward=60, backward=90, environment=_GPU, causes=_with(_CHANGING)),
        example(step_ms=300, forward=280, environment=_GPU, causes=_with(replace(_CHANGING, new_steps=38))),
    ),
    quiet_on=(
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_CHANGING, search="off"))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_CHANGING, new_steps=7))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_CHANGING, new_s=0.095))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_CHANGING, steps=18))),
        example(step_ms=170, forward=150, causes=_with(_CHANGING)),
        example(step_ms=170, forward=150, environment=_GPU, causes=_with(None)),
    ),
)
