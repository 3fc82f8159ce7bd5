"""The CPU computes with numbers too small for full precision, and slows down for each of them.

## What it measures

The share of such numbers (in float32, those below 1.2e-38 that are not zero) among weights, gradients and optimizer
state a few steps into the deep run. Where there are any, the deep run computes some steps as they are, then some in
which they count as zero, in turn. It fires when one number in 10,000 is so small, that takes at least 5% off the step,
and nine of ten pairs of steps say the same.

## Why it matters

Many CPUs compute with such numbers in microcode, tens of times slower than with others. Averages and weights that decay
towards zero end there and stay there, as squares of gradients below some 1e-18 do in Adam. On an AMD EPYC (one thread,
least of n=30 times 262,144 numbers, torch 2.13; `python benchmarks/denormals.py`) roots took 31 times as long as of
other numbers, logarithms 9, `exp` and `gelu` 2 to 3 times; products, sums, convolutions and `tanh` no longer.

## What to do

`torch.set_flush_denormal(True)` at the start of the script: they count as zero. Or end what decays: a floor under it,
an `eps` that is large enough.

## When it is wrong

The switch belongs to a thread: those that torch has started already compute as before, so with several of them the deep
run sees a part of what there is. Where the ranks of the machine run more threads than it has cores, numbers of threads
are compared in its place.
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
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} goes when numbers below 1.2e-38 count as zero, as "
        f"measured with both in turn ({price.steps} steps each): {format_share(most.share)} of the {most.where} are. "
        "Call torch.set_flush_denormal(True) first.",
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
