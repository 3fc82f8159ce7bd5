"""The ranks on this machine together run more threads than it has cores.

## What it measures

The number of recorded ranks times the threads that each uses for one operation, compared with the cores that this
process may use. It fires for training on the CPU when there are more threads than cores, and forward, backward and
optimizer are at least 30% of the step. The deep run alternates between a few steps with the script's number of threads
and a few with the rank's share of the cores, in all ranks at the same steps. The gain is what that saves of these
phases; below 5% of the step nothing is reported, nor where the pairs of steps agree no more than by chance: steps with
too many threads scatter. While other processes use the machine, no gain is stated.

## Why it matters

Threads of one operation wait for each other: when one of them has no core, all do. Two ranks with two threads each
on two cores are slower than with one each.

## What to do

`OMP_NUM_THREADS` = cores divided by ranks. torchrun sets it to 1 where it is not set; a script that calls
`torch.set_num_threads` overrides that.

## When it is wrong

Ranks bound to cores of their own (`numactl`, `taskset`) see fewer cores than there are for all of them; where fewer
threads could be tried, the measured steps show that.
"""

from flatout.rules.core.bounds import speedup_without
from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import at, of_step
from flatout.rules.facts.machine_facts import cores_are_shared, is_disturbed, num_processes
from flatout.rules.facts.setting_trials import computing, is_sure, measured
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Causes, Environment, Frame, RankSummary, Run, SettingTrial
from flatout.units import format_share

MIN_COMPUTING = 0.3
MIN_SHARE = 0.05


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """DI002: ranks times threads exceed the cores of a training on the CPU."""
    ranks, machine = num_processes(run), run.environment
    shares = computing(breakdown)
    if not cores_are_shared(run) or shares < MIN_COMPUTING:
        return None
    disturbed, tried = is_disturbed(run), measured(run, "threads")
    price = tried if tried is not None and is_sure(tried) and not disturbed else None
    share = 0.0 if price is None else price.share * shares
    if not disturbed and share < MIN_SHARE and tried is not None:
        return None
    own = max(1, machine.num_cpus // ranks) if tried is None else round(tried.tried)
    place = None if tried is None else tried.place
    gain = f"{format_share(shares)} of each step is computation (n={breakdown.measured})"
    if price is not None:
        saved = of_step(breakdown, share * breakdown.mean_ms)
        gain = f"{own} for each saves {saved}, measured A/B with {price.steps} steps each"
    setting = f"OMP_NUM_THREADS={own}" if place is None else f"torch.set_num_threads({own}) in {at(place)}"
    return Finding(
        code="DI002",
        name="cores-shared-by-ranks",
        phase=Phase.FORWARD,
        share=share,
        max_speedup=speedup_without(share),
        location=place,
        message=f"{ranks} ranks with {machine.torch_threads} threads each share {machine.num_cpus} cores, and {gain}. "
        f"Give each rank {own}: {setting}.",
        evidence=(
            Evidence("ranks", ranks, ""),
            Evidence("threads", machine.torch_threads, ""),
            Evidence("cores", machine.num_cpus, ""),
        ),
        fixes=("cpu-threads",),
    )


def _machine(threads: int, cores: int, kind: str = "cpu") -> Environment:
    return Environment(torch_threads=threads, num_cpus=cores, device_kind=kind)


def _priced(share: float, ordered: float = 1.0) -> Causes:
    place = Frame("train.py", 8, "main")
    price = SettingTrial(switch="threads", own=2, tried=1, share=share, steps=30, ordered=ordered, place=place)
    return Causes(num_steps=60, prices=(price,))


_RANKS = tuple(RankSummary(rank=number, num_steps=60, median_ms=100.0) for number in range(2))
_SPAWNED = (_RANKS[0], _RANKS[0])  # processes that do not know their rank

RULE = Rule(
    code="DI002",
    name="cores-shared-by-ranks",
    check=check,
    fires_on=(
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(2, 2)),
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(6, 8)),
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(2, 2), causes=_priced(0.6)),
        example(
            step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(2, 2), causes=_priced(0.6, 0.81)
        ),
        example(step_ms=100, forward=40, backward=50, ranks=_SPAWNED, environment=_machine(2, 2), causes=_priced(0.6)),
    ),
    quiet_on=(
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(1, 2)),
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS[:1], environment=_machine(2, 2)),
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(2, 2, "cuda")),
        example(step_ms=100, forward=10, input=80, ranks=_RANKS, environment=_machine(2, 2)),
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(2, 2), causes=_priced(-0.1)),
        example(
            step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(2, 2), causes=_priced(0.1, 0.6)
        ),
    ),
)
