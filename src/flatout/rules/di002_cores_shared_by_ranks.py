"""The ranks on this machine together run more threads than it has cores.

## What it measures

The ranks that were recorded, times the threads each uses for one operation, against the cores that this process may
use. It fires for training on the CPU when there are more threads than cores.

## Why it matters

Threads of one operation wait for each other: when one of them has no core, all do. Two ranks with two threads each
on two cores are slower than with one each.

## What to do

`OMP_NUM_THREADS` = cores divided by ranks. torchrun sets it to 1 where it is not set; a script that calls
`torch.set_num_threads` overrules that.

## When it is wrong

Ranks bound to cores of their own (`numactl`, `taskset`) may see fewer cores than there are for all of them.
"""

from flatout.rules.example import example
from flatout.rules.rule import Rule
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, RankSummary, Run
from flatout.units import format_share

COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
MIN_SHARE = 0.3


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """DI002: ranks times threads exceed the cores of a training on the CPU."""
    ranks, machine = len({rank.rank for rank in run.ranks}), run.environment
    threads = ranks * machine.torch_threads
    computing = sum(breakdown.share(phase) for phase in COMPUTE)
    settable = ranks > 1 and machine.torch_threads > 1  # with one thread each there are more ranks than cores: no cure
    if not settable or machine.device_kind != "cpu" or threads <= machine.num_cpus or computing < MIN_SHARE:
        return None
    return Finding(
        code="DI002",
        name="cores-shared-by-ranks",
        phase=Phase.FORWARD,
        share=0.0,
        max_speedup=1.0,
        message=f"{ranks} ranks with {machine.torch_threads} threads each share {machine.num_cpus} cores, and "
        f"{format_share(computing)} of each step is computing (n={breakdown.measured}). Give each rank "
        f"{max(1, machine.num_cpus // ranks)}: OMP_NUM_THREADS={max(1, machine.num_cpus // ranks)}.",
        evidence=(
            Evidence("ranks", ranks, ""),
            Evidence("threads", machine.torch_threads, ""),
            Evidence("cores", machine.num_cpus, ""),
        ),
        fixes=(),
    )


def _machine(threads: int, cores: int, kind: str = "cpu") -> Environment:
    return Environment(torch_threads=threads, num_cpus=cores, device_kind=kind)


_RANKS = tuple(RankSummary(rank=number, num_steps=60, median_ms=100.0) for number in range(2))

RULE = Rule(
    code="DI002",
    name="cores-shared-by-ranks",
    check=check,
    fires_on=(
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(2, 2)),
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(6, 8)),
    ),
    quiet_on=(
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(1, 2)),
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS[:1], environment=_machine(2, 2)),
        example(step_ms=100, forward=40, backward=50, ranks=_RANKS, environment=_machine(2, 2, "cuda")),
        example(step_ms=100, forward=10, input=80, ranks=_RANKS, environment=_machine(2, 2)),
    ),
)
