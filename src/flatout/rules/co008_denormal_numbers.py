"""The CPU computes with denormal numbers, too small for full precision, and each of them is slow.

## What it measures

The share of denormal numbers (in float32, nonzero and below 1.2e-38) among weights, gradients and optimizer state a few
steps into the deep run. If there are any, the deep run alternates between steps as they are and steps in which such
numbers count as zero. It fires when one number in 10,000 is denormal, counting them as zero saves at least 5% of the
step, and nine of ten pairs of steps agree.

## Why it matters

Many CPUs handle such numbers in microcode, tens of times slower than others. Averages and weights that decay towards
zero end there and stay there, as do squares of gradients below some 1e-18 in Adam. On an AMD EPYC (one thread,
least of n=30 times 262,144 numbers, torch 2.13; `python benchmarks/denormals.py`) square roots took 31 times as long as
for other numbers, logarithms 9, `exp` and `gelu` 2 to 3 times; products, sums, convolutions and `tanh` took no longer.

## What to do

Call `torch.set_flush_denormal(True)` at the start of the script: such numbers then count as zero. Or stop the decay: a
floor under the values, or an `eps` that is large enough.

## When it is wrong

The switch is per thread: threads that torch has already started compute as before, so with several threads the deep run
sees only part of the gain. Where the ranks of the machine run more threads than it has cores, numbers of threads are
compared instead.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step
from flatout.rules.facts.setting_trials import computing, priced
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Denormals, Environment, Run, SettingTrial
from flatout.units import format_share

MIN_SHARE = 0.05
MIN_FOUND = 1e-4
PHASES = {"gradients": Phase.BACKWARD, "optimizer state": Phase.OPTIMIZER}  # that first compute with such numbers


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """CO008: numbers below full precision cost a twentieth of the step."""
    price = priced(run, "denormals")
    if price is None or run.causes is None or run.environment.device_kind != "cpu":
        return None
    most = max(run.causes.denormals, key=lambda found: found.share, default=Denormals(where=""))
    share = price.share * computing(breakdown)
    if share < MIN_SHARE or most.share < MIN_FOUND:
        return None
    return Finding(
        code="CO008",
        name="denormal-numbers",
        phase=PHASES.get(most.where, Phase.FORWARD),
        share=share,
        max_speedup=speedup_without(share),
        message=f"Counting numbers below 1.2e-38 as zero saves {of_step(breakdown, share * breakdown.mean_ms)}"
        f", measured A/B with {price.steps} steps each: {format_share(most.share)} of the {most.where} are that small. "
        "Call torch.set_flush_denormal(True) at the start of the script.",
        evidence=(
            Evidence(f"denormals among the {most.where}", most.share, ""),
            Evidence("steps with each", price.steps, ""),
            Evidence("pairs of steps that agree", price.ordered, ""),
        ),
        fixes=("denormals",),
    )


_PRICE = SettingTrial(switch="denormals", tried=1.0, share=0.3, steps=30, ordered=0.97)
_FEW = Denormals(where="weights", elements=100_000, share=1e-5)
_MANY = Denormals(where="optimizer state", elements=100_000, share=0.2)


def _with(price: SettingTrial, *found: Denormals) -> Causes:
    return Causes(num_steps=60, prices=(price,), denormals=found)


RULE = Rule(
    code="CO008",
    name="denormal-numbers",
    check=check,
    fires_on=(
        example(step_ms=100, forward=30, backward=60, causes=_with(_PRICE, _FEW, _MANY)),
        example(step_ms=100, forward=5, backward=12, optimizer=3, causes=_with(_PRICE, _MANY)),
    ),
    quiet_on=(
        example(step_ms=100, forward=5, backward=10, causes=_with(_PRICE, _MANY)),
        example(step_ms=100, forward=30, backward=60, causes=_with(_PRICE, _FEW)),
        example(step_ms=100, forward=30, backward=60, causes=_with(_PRICE)),
        example(step_ms=100, forward=30, backward=60, causes=_with(replace(_PRICE, ordered=0.6), _MANY)),
        example(
            step_ms=100,
            forward=90,
            causes=_with(_PRICE, _MANY),
            environment=Environment(device_kind="cuda", num_devices=1),
        ),
    ),
)
