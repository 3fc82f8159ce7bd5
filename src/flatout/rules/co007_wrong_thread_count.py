"""torch uses more or fewer CPU threads than there are cores, and that is slower.

## What it measures

The deep run alternates between a few steps with the script's number of threads and a few with as many as there are
cores. It fires when that saves at least 10% of the step in forward, backward and optimizer, and nine of ten pairs of
steps agree. More threads than are in use are tried only where no environment variable sets the number or the script
sets it itself, and where neither loader workers nor other ranks need cores. Nothing is reported while other processes
use the machine, nor where denormal numbers are found: those are tried instead (CO008).

## Why it matters

Too few threads leave cores idle. Too many wait for each other: every operation ends with its last thread, and that one
has no core. Containers are the usual case: torch counts the machine's cores, but the container may use only a few.

## What to do

`torch.set_num_threads(N)` before the training, or `OMP_NUM_THREADS=N`, with the number that was faster.

## When it is wrong

Small operations gain nothing from threads. A number chosen to leave cores for something that comes later (workers, a
second training) is right all the same: an operation waits for its last thread. With another process on one of two
cores, an epoch took 7.1 s instead of 0.7 s on two threads, and 1.4 s instead of 1.2 s on one (n=1).
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.machine_facts import is_disturbed
from flatout.rules.facts.setting_trials import computing, priced
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Frame, Run, SettingTrial, Utilization

MIN_SHARE = 0.10


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO007: another number of threads takes a tenth off the step."""
    price, machine = priced(run, "threads"), run.environment
    if price is None or machine.device_kind != "cpu" or price.tried < machine.num_cpus or is_disturbed(run):
        return None
    share = price.share * computing(breakdown)
    if share < MIN_SHARE:
        return None
    set_at = f" The script sets {price.own:.0f} in {at(price.place)}." if price.place else ""
    return Finding(
        code="CO007",
        name="wrong-thread-count",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=price.place,
        message=f"Computing with {price.tried:.0f} threads instead of {price.own:.0f} saves "
        f"{of_step(breakdown, share * breakdown.mean_ms)}, measured A/B with {price.steps} steps each."
        f"{set_at} Set {price.tried:.0f}, the number of cores.",
        evidence=(
            Evidence("threads", price.own, ""),
            Evidence("cores", price.tried, ""),
            Evidence("steps with each", price.steps, ""),
            Evidence("pairs of steps that agree", price.ordered, ""),
        ),
        fixes=("cpu-threads",),
    )


_AT = Frame("train.py", 8, "<module>")
_ONE = SettingTrial(switch="threads", own=1, tried=4, share=0.5, steps=30, ordered=1.0, place=_AT)
_MANY = SettingTrial(switch="threads", own=64, tried=4, share=0.8, steps=9, ordered=0.99)
_OTHERS = tuple(Utilization(at_s=0.5 * i, main_cpu=1.0, foreign_cpu=0.8) for i in range(12))


def _with(price: SettingTrial) -> Causes:
    return Causes(num_steps=60, prices=(price,))


RULE = Rule(
    code="CO007",
    name="wrong-thread-count",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, causes=_with(_ONE)),
        example(step_ms=100, forward=10, backward=20, input=65, causes=_with(_MANY)),
    ),
    quiet_on=(
        example(step_ms=100, forward=30, backward=60, causes=_with(replace(_ONE, share=0.10))),
        example(step_ms=100, forward=30, backward=60, causes=_with(replace(_ONE, ordered=0.85))),
        example(step_ms=100, forward=30, backward=60, causes=_with(replace(_ONE, steps=7))),
        example(step_ms=100, forward=30, backward=60, causes=_with(replace(_ONE, share=-0.4, ordered=0.0))),
        example(step_ms=100, forward=30, backward=60, causes=_with(_ONE), utilization=_OTHERS),
        example(step_ms=100, forward=30, backward=60, causes=_with(_ONE), environment=Environment(device_kind="cuda")),
        example(step_ms=100, forward=30, backward=60, causes=_with(replace(_ONE, switch="denormals"))),
    ),
)
