"""Samples wait for storage that already delivers all it can.

## What it measures

The CPU time of the thread that fetches samples against its wall time (below 40%: it waits), and the bytes that the
training and its workers read from storage while steps ran. It fires when input takes at least 15% of the step, cores
are free, and 500 MB are read in a second, or 20 MB with at least 16 workers: then more concurrent requests bring
nothing.

## Why it matters

A disk delivers a limited number of bytes a second, and a step cannot be faster than its samples are read. On a disk
that gave 0.9 GB/s (2 cores of an AMD EPYC, torch 2.13), 39% of each step of 20 ms waited for pictures of 1 MiB (n=222
steps): at most 1.65x. The pictures were continuously dropped from memory, as if they did not fit. A first pass over
3600 of them took 5.2 s (n=3, 4.9 to 5.8); over 8-bit versions of half the width and height it took 1.7 s (n=3, 1.4 to
2.1).

## What to do

Read less: smaller files (images resized once, 8 bits in place of floats), only the columns or parts that are used. Or
read them once: keep them in memory if they fit, or on a local disk if they come over a network.

## When it is wrong

The first pass reads files from the disk, later ones perhaps from memory: files that fit there are no problem for long.
Where the deep run (the second, instrumented run) finds in memory what the timed run has just read, nothing is
reported. The kernel does not count reads over a network as storage.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_of_input
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.input_stages import READING
from flatout.rules.facts.loader_facts import cpu_share, fraction_of_batch, training_loader, waits_s
from flatout.rules.facts.sample_stacks import sample_lines
from flatout.rules.facts.user_lines import hottest
from flatout.rules.facts.worker_facts import read_bytes_s, storage_limits
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import LoaderFacts, Run, Utilization
from flatout.units import format_bytes, format_share


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN015: the step waits for samples that wait for storage at its limit."""
    loader = training_loader(run)
    if loader is None or not storage_limits(run, breakdown, loader):
        return None
    fraction = fraction_of_batch(loader, waits_s(loader))
    share = breakdown.share(Phase.INPUT) * fraction
    lines = sample_lines(run, loader)
    spot = hottest(lines, among=lines)
    rate = read_bytes_s(run)
    return Finding(
        code="IN015",
        name="storage-bound",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_of_input(run, breakdown, loader, fraction, headroom),
        location=spot.place if spot else loader.created_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent waiting for storage"
        f"{f' in {within(spot)}' if spot else ''}: {format_bytes(rate)} are read in a second, and "
        f"{format_share(cpu_share(loader))} of the fetching is CPU time. Read less, or keep what was read.",
        evidence=(
            Evidence("read in a second", rate, "bytes"),
            Evidence("samples of one batch", loader.sample_s * 1000, "ms"),
            Evidence("CPU time of that", loader.sample_cpu_s * 1000, "ms"),
            Evidence("in flight", max(1, loader.num_workers), ""),
        ),
        fixes=("compiled-input", "cached-input"),
    )


_LOADER = LoaderFacts(is_training=True, batch_size=32, sample_s=0.16, sample_cpu_s=0.02, collate_s=0.001, fetches=40)
_MANY = replace(_LOADER, num_workers=16)
_LINES = (line(3.0, ("data.py", 22, "Clips.__getitem__"), stage="sample", leaf="", leaf_function="read"),)


def _reading(rate: float, foreign: float = 0.0) -> tuple[Utilization, ...]:
    return tuple(Utilization(at_s=0.5 * i, main_cpu=0.2, foreign_cpu=foreign, read_bytes_s=rate) for i in range(20))


RULE = Rule(
    code="IN015",
    name="storage-bound",
    check=check,
    subsumes=("slow-sample-line",),
    stage=READING,
    fires_on=(
        example(step_ms=200, input=161, forward=30, loaders=(_LOADER,), lines=_LINES, utilization=_reading(9e8)),
        example(step_ms=40, input=20, forward=15, loaders=(_MANY,), utilization=_reading(6e7)),
    ),
    quiet_on=(
        example(step_ms=200, input=161, forward=30, loaders=(_LOADER,), lines=_LINES, utilization=_reading(4e8)),
        example(step_ms=40, input=20, forward=15, loaders=(_MANY,), utilization=_reading(1e7)),
        example(step_ms=200, input=25, forward=160, loaders=(_LOADER,), utilization=_reading(9e8)),
        example(step_ms=200, input=161, loaders=(replace(_LOADER, sample_cpu_s=0.1),), utilization=_reading(9e8)),
        example(step_ms=200, input=161, loaders=(_LOADER,), utilization=_reading(9e8, foreign=1.0)),
        example(step_ms=200, input=161, forward=30, loaders=(_LOADER,), lines=_LINES),
    ),
    preview=True,
)
