"""cuDNN searches for convolution algorithms again and again, because shapes keep changing.

## What it measures

With `torch.backends.cudnn.benchmark` on: how many steps of the deep run meet a convolution of a new shape, and how much
longer forward, backward and optimizer take in these than in the others. It fires on CUDA devices when that is at least
5% of the step, with at least eight steps of each kind. Where nearly every step has a new shape there is nothing to
compare with. Then the search is taken to cost what is left of the step without its kernels, those of the search
included, and without 50 us for launching each. Where no kernels were seen, it says that the cost is not known.

## Why it matters

A search runs every available algorithm several times, for each convolution of that shape, and allocates its workspace
each time. It pays when the shape returns many times.

## What to do

Set `torch.backends.cudnn.benchmark = False`; or bring images to a few sizes (buckets, multiples of 32 or 64), and drop
the last, smaller batch.

## When it is wrong

A training with some hundred shapes has met all of them after an epoch: what a few steps at the start show does not
last. New shapes may also be larger, and take longer for that reason.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.setting_trials import computing
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Convolutions, DeviceWork, Environment, Run

MIN_SHARE = 0.05
MIN_STEPS = 8
NEARLY_ALL = 0.9
LAUNCH_S = 50e-6  # of the host for each kernel: 23 to 48 in the recordings of GPUs that waited for it
MIN_LOOKED_AT = 20  # steps, where nothing is known of their kernels
UNKNOWN = "What this costs is not known. "


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO016: searching costs a twentieth of the step, or nearly every step searches."""
    seen = run.causes.convolutions if run.causes else None
    if seen is None or seen.search != "on" or run.environment.device_kind != "cuda" or seen.new_steps < MIN_STEPS:
        return None
    all_new = seen.new_steps >= NEARLY_ALL * seen.steps
    beside = _beside_kernels(run, breakdown) if all_new else _share(seen)
    share = (beside or 0.0) * _whole(breakdown)
    if share < MIN_SHARE and not (beside is None and seen.steps >= MIN_LOOKED_AT):
        return None
    if not all_new and seen.steps - seen.new_steps < MIN_STEPS:
        return None
    some = "some " if all_new else ""
    cost = f"That takes {some}{of_step(breakdown, share * breakdown.mean_ms)}. " if share else UNKNOWN
    return Finding(
        code="CO016",
        name="search-for-each-shape",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        message=f"cuDNN searches for algorithms in {seen.new_steps} of n={seen.steps} steps, since their convolutions "
        f"have new shapes. {cost}"
        "Set torch.backends.cudnn.benchmark = False, or bring images to a few sizes.",
        evidence=(
            Evidence("steps with a new shape", seen.new_steps, ""),
            Evidence("such a step", seen.new_s * 1e3, "ms"),
            Evidence("a step without", seen.known_s * 1e3, "ms"),
        ),
        fixes=("cudnn-search-off",),
    )


def _whole(breakdown: Breakdown) -> float:
    return computing(breakdown) + breakdown.share(Phase.SYNC)


def _beside_kernels(run: Run, breakdown: Breakdown) -> float | None:
    """Return the share of the computing that neither kernels nor starting them explain; None where none were seen."""
    work = run.causes.device_work if run.causes else None
    if work is None or work.num_steps <= 0 or work.num_kernels <= 0 or breakdown.mean_ms <= 0:
        return None
    explained_s = work.seconds.get("kernel", 0.0) + work.num_kernels * LAUNCH_S
    return max(0.0, 1 - explained_s / work.num_steps * 1e3 / max(1e-9, _whole(breakdown) * breakdown.mean_ms))


def _share(seen: Convolutions) -> float:
    """Return the share of the computing that goes when steps with new shapes take as long as the others."""
    known = seen.steps - seen.new_steps
    whole = seen.new_s * seen.new_steps + seen.known_s * known
    return max(0.0, seen.new_s - seen.known_s) * seen.new_steps / whole if whole > 0 else 0.0


_GPU = Environment(device="NVIDIA H200", device_kind="cuda", num_devices=1)
_CHANGING = Convolutions(search="on", steps=40, new_steps=16, new_s=0.3, known_s=0.09)


_EACH = Convolutions(search="on", steps=8, new_steps=8, new_s=0.6)
_KERNELS = DeviceWork(num_steps=4, wall_s=4.4, busy_s=0.3, num_kernels=9000, seconds={"kernel": 0.24})


def _with(seen: Convolutions | None) -> Causes:
    return Causes(num_steps=40, convolutions=seen)


RULE = Rule(
    code="CO016",
    name="search-for-each-shape",
    check=check,
    fires_on=(
        example(step_ms=170, forward=60, backward=90, environment=_GPU, causes=_with(_CHANGING)),
        example(step_ms=300, forward=280, environment=_GPU, causes=_with(replace(_CHANGING, new_steps=38))),
        example(step_ms=1100, forward=1090, environment=_GPU, causes=replace(_with(_EACH), device_work=_KERNELS)),
    ),
    quiet_on=(
        example(step_ms=1100, forward=1090, environment=_GPU, causes=_with(_EACH)),
        example(step_ms=60, forward=58, environment=_GPU, causes=replace(_with(_EACH), device_work=_KERNELS)),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_CHANGING, search="off"))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_CHANGING, new_steps=7))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_CHANGING, new_s=0.095))),
        example(step_ms=100, forward=90, environment=_GPU, causes=_with(replace(_CHANGING, steps=18))),
        example(step_ms=170, forward=150, causes=_with(_CHANGING)),
        example(step_ms=170, forward=150, environment=_GPU, causes=_with(None)),
    ),
)
