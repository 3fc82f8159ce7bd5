"""The machine's memory is nearly full while the training runs.

## What it measures

The least memory that was still available on the machine while steps ran, compared with the whole. It fires when less
than 7% is left.

## Why it matters

The next larger batch, a second worker or another job ends the training: the system kills it without a Python error
message. Before that there is no memory left for the page cache, and every epoch reads its files from the disk again. A
script that keeps 43,100 sound clips as float32 in a list left 1.6 GiB of 23.5 GiB and was reported; with the same clips
in 8 bits it left 17.5 GiB (n=1 recording each, 2 cores of an AMD EPYC, torch 2.13).

## What to do

Fewer workers or a smaller `prefetch_factor` (each worker holds that many batches), data in arrays or mapped files
instead of lists of objects, batches in uint8.

## When it is wrong

Another program may hold the memory. In a container with its own limit the machine's size is not what counts; the limit
may be lower.
"""

from flatout.rules.core.example import example
from flatout.rules.core.rule import Rule
from flatout.rules.facts.machine_facts import while_steps_ran
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, Run, Utilization
from flatout.units import format_bytes, format_share

LEAST_SHARE = 0.07


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """ME003: a fifteenth of the memory is left."""
    samples = while_steps_ran(run)
    known = [sample.available_bytes for sample in samples if sample.available_bytes > 0]
    whole = run.environment.memory_bytes
    if not known or min(known) > LEAST_SHARE * whole:
        return None
    least = min(known)
    return Finding(
        code="ME003",
        name="memory-nearly-full",
        phase=Phase.OTHER,
        share=0.0,
        max_speedup=1.0,
        message=f"Only {format_bytes(least)} of {format_bytes(whole)} of memory was left, "
        f"{format_share(least / whole)} (n={len(known)}). Use fewer workers, a smaller prefetch factor, or arrays "
        "instead of lists.",
        evidence=(Evidence("least available", least, "bytes"), Evidence("memory", whole, "bytes")),
        fixes=(),
    )


_MACHINE = Environment(memory_bytes=16 * 2**30)


def _left(share: float) -> tuple[Utilization, ...]:
    return tuple(Utilization(at_s=0.5 * i, available_bytes=int(share * 16 * 2**30)) for i in range(12))


RULE = Rule(
    code="ME003",
    name="memory-nearly-full",
    check=check,
    fires_on=(
        example(step_ms=100, forward=50, environment=_MACHINE, utilization=_left(0.06)),
        example(step_ms=100, forward=50, environment=_MACHINE, utilization=_left(0.01)),
    ),
    quiet_on=(
        example(step_ms=100, forward=50, environment=_MACHINE, utilization=_left(0.08)),
        example(step_ms=100, forward=50, environment=_MACHINE, utilization=_left(0.0)),
        example(step_ms=100, forward=50, environment=_MACHINE),
    ),
    no_cure="Less memory means other data or other settings, and only their author knows which may go.",
)
