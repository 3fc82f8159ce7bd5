"""Samples wait for I/O one after the other, and almost none wait at the same time.

## What it measures

The CPU time of the thread that fetches samples against its wall time. Less than 40% means that it waits: for a disk, a
network, a database, another process. It fires when input takes at least 15% of the step, fewer than 16 samples can be
in flight (one in each worker), a sample waits for at least 0.3 ms, and the wait cannot be for a core: less than 85% of
the cores are in use (by any process), and there are fewer workers than cores where other processes load the machine.
Where storage already delivers 500 MB a second, IN015 reports it instead.

## Why it matters

Waiting costs no core, so many waits can overlap. Measured for 5 ms of waiting a sample on 2 cores: 196 samples/s
alone, 777 with 4 workers, 3,041 with 16, and 12,400 with 64 threads that fetch single samples.

## What to do

Read many samples at once: a thread pool in `__getitems__` or in `collate_fn` (64 threads are cheap), or more workers
than cores. Open connections and files once, not for every sample; read large ranges rather than many small ones.

## When it is wrong

The first pass over files waits for the disk; later passes may find them in memory. A server may allow few requests. A
thread pool inside the data set is not seen: its CPU time is not that of the thread that fetches.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_of_input, speedup_of_waits, speedup_without
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.input_stages import SAMPLES
from flatout.rules.facts.loader_facts import cpu_share, fraction_of_batch, training_loader, waits_s
from flatout.rules.facts.sample_stacks import sample_lines
from flatout.rules.facts.user_lines import hottest
from flatout.rules.facts.worker_facts import samples_wait
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import Environment, LoaderFacts, Run, Utilization
from flatout.units import format_share


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN012: the step waits for samples that wait for something other than the CPU."""
    loader = training_loader(run)
    if loader is None or not samples_wait(run, breakdown, loader):
        return None
    in_flight = "" if loader.has_getitems else f", with {max(1, loader.num_workers)} in flight"
    fraction = fraction_of_batch(loader, waits_s(loader))
    share = breakdown.share(Phase.INPUT) * fraction
    most = min(speedup_of_input(run, breakdown, loader, fraction, headroom), speedup_of_waits(run, breakdown))
    lines = sample_lines(run, loader)
    spot = hottest(lines, among=lines)
    where = f" in {within(spot)}" if spot else ""
    return Finding(
        code="IN012",
        name="io-wait-low-concurrency",
        phase=Phase.INPUT,
        share=share,
        max_speedup=most,
        bound_by="the CPU work of the step stays, on all cores" if most < speedup_without(share) else "",
        location=spot.place if spot else loader.created_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent waiting for something other than the CPU"
        f"{where}: {format_share(cpu_share(loader))} of the fetching is CPU time{in_flight}. Fetch many samples at "
        "once, on threads.",
        evidence=(
            Evidence("samples of one batch", loader.sample_s * 1000, "ms"),
            Evidence("CPU time of that", loader.sample_cpu_s * 1000, "ms"),
            Evidence("workers", loader.num_workers, ""),
            Evidence("batches measured", loader.fetches, ""),
        ),
        fixes=("compiled-input", "loader-workers"),
    )


_LOADER = LoaderFacts(is_training=True, batch_size=32, sample_s=0.16, sample_cpu_s=0.004, collate_s=0.001, fetches=40)
_TWO = replace(_LOADER, num_workers=2)
_LINES = (line(3.0, ("data.py", 22, "Remote.__getitem__"), stage="sample", leaf="socket", leaf_function="recv_into"),)
_STARVED = tuple(Utilization(at_s=0.5 * i, main_cpu=1.0, worker_cpu=0.98) for i in range(20))
_TAKEN = tuple(Utilization(at_s=0.5 * i, main_cpu=0.3, worker_cpu=0.1, foreign_cpu=1.4) for i in range(20))
_QUEUED = replace(_TWO, sample_s=0.30, sample_queued_s=0.14)  # behind other programs, which the system counts
_SHARED = tuple(Utilization(at_s=0.5 * i, main_cpu=0.6, worker_cpu=0.1, foreign_cpu=0.4) for i in range(20))

RULE = Rule(
    code="IN012",
    name="io-wait-low-concurrency",
    check=check,
    subsumes=("slow-sample-line",),
    after=("remote-reads-unused",),
    stage=SAMPLES,
    fires_on=(
        example(step_ms=200, input=161, forward=30, loaders=(_LOADER,), lines=_LINES),
        example(step_ms=82, input=40, forward=30, loaders=(_TWO,)),
        example(step_ms=170, input=120, loaders=(_QUEUED,), environment=Environment(num_cpus=2), utilization=_TAKEN),
    ),
    quiet_on=(
        example(step_ms=200, input=29.8, forward=160, loaders=(_LOADER,), lines=_LINES),
        example(step_ms=200, input=161, loaders=(replace(_LOADER, sample_cpu_s=0.066),)),
        example(step_ms=200, input=161, loaders=(replace(_LOADER, num_workers=16),)),
        example(step_ms=82, input=40, loaders=(_TWO,), environment=Environment(num_cpus=2), utilization=_STARVED),
        example(step_ms=82, input=40, loaders=(_TWO,), environment=Environment(num_cpus=2), utilization=_TAKEN),
        example(step_ms=170, input=120, loaders=(_QUEUED,), environment=Environment(num_cpus=2), utilization=_STARVED),
        example(step_ms=82, input=40, loaders=(_TWO,), environment=Environment(num_cpus=2), utilization=_SHARED),
        example(step_ms=9, input=8, loaders=(replace(_LOADER, sample_s=0.007, sample_cpu_s=0.002),)),
        example(step_ms=400, input=300, loaders=(_TWO,)),
    ),
)
