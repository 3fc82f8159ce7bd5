"""Memory that a step gives back is taken anew from the kernel in the next step, page by page.

## What it measures

The minor page faults of the deep run's steps (the second, instrumented run), times what the first touch of a page takes
on this machine, and at most the time that all threads spent in the kernel, against the time of the steps. It fires at
5% of the step, on Linux with the GNU C library.

## Why it matters

The C library returns large blocks to the kernel when they are freed, and asks for them again a moment later. The kernel
clears each page at its first touch: 0.1 us on some machines, and more than 2 us on virtual ones. Activations and
gradients of a model on the CPU are such blocks. A small U-Net (8 images of 128 x 128, one thread) took 28,000 faults a
step, and 13% of its time went to the kernel; with other thresholds there were none (2 cores of an AMD EPYC under KVM,
torch 2.13).

## What to do

Let the C library keep what was freed: `flatout.keep_freed_memory()` before the training, or the environment variables
`MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_TOP_PAD_=67108864 MALLOC_MMAP_THRESHOLD_=33554432`. Another allocator does the
same (`LD_PRELOAD` of jemalloc or tcmalloc).

## When it is wrong

The first steps take memory for good. The process keeps its largest use until it ends: where memory is short, and
several processes take turns in using it, that counts.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.schema.facts import PageFaults
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Run
from flatout.units import format_share

MIN_SHARE = 0.05
MIN_STEPS = 8


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """ME007: a twentieth of the step takes memory anew."""
    found = run.causes.page_faults if run.causes else None
    if found is None or found.steps < MIN_STEPS or "glibc" not in run.environment.platform:
        return None
    share = spent_on_faults(found)
    if share < MIN_SHARE:
        return None
    computing = {phase: breakdown.share(phase) for phase in (Phase.FORWARD, Phase.BACKWARD)}
    return Finding(
        code="ME007",
        name="memory-taken-anew",
        phase=max(computing, key=lambda phase: computing[phase]),
        share=share,
        max_speedup=speedup_without(share),
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes to the kernel, which clears memory that the "
        f"step before has given back: {found.faults // found.steps:,} page faults a step, and "
        f"{format_share(found.system_s / found.wall_s)} of the time in the kernel. Let the C library keep what was "
        "freed: raise MALLOC_TRIM_THRESHOLD_ and MALLOC_TOP_PAD_.",
        evidence=(
            Evidence("page faults a step", found.faults / found.steps, ""),
            Evidence("one fault", found.fault_s * 1e6, "us"),
            Evidence("time in the kernel", found.system_s / found.wall_s, "share"),
        ),
        fixes=("kept-memory",),
    )


def spent_on_faults(found: PageFaults) -> float:
    """Return the share of the steps that page faults take."""
    if found.wall_s <= 0:
        return 0.0
    return min(found.faults * found.fault_s, found.system_s, found.wall_s) / found.wall_s


_LINUX = Environment(platform="Linux-6.1-x86_64-with-glibc2.36")


def _with(faults: int, system_s: float = 1.2, steps: int = 60) -> Causes:
    found = PageFaults(steps=steps, faults=faults, system_s=system_s, wall_s=6.0, fault_s=1e-6)
    return Causes(num_steps=60, page_faults=found)


RULE = Rule(
    code="ME007",
    name="memory-taken-anew",
    check=check,
    fires_on=(
        example(step_ms=100, forward=40, backward=50, causes=_with(1_000_000), environment=_LINUX),
        example(step_ms=100, forward=40, backward=50, causes=_with(9_000_000, 0.4), environment=_LINUX),
    ),
    quiet_on=(
        example(step_ms=100, forward=40, backward=50, causes=_with(200_000), environment=_LINUX),
        example(step_ms=100, forward=40, backward=50, causes=_with(9_000_000, 0.1), environment=_LINUX),
        example(step_ms=100, forward=40, backward=50, causes=_with(1_000_000, steps=4), environment=_LINUX),
        example(step_ms=100, forward=40, backward=50, causes=_with(1_000_000)),
        example(step_ms=100, forward=40, backward=50, causes=Causes(num_steps=60), environment=_LINUX),
    ),
)
