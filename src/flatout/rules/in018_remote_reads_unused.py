"""Files are read over the network in large blocks, and most of the bytes are thrown away.

## What it measures

For files that fsspec opens (`s3fs`, `gcsfs`, `adlfs`, `http`, ...): how many bytes their caches request while samples
are made, how many of them the script reads, and how long the reads that cause requests take. It fires when at least
half of the bytes are not read, a request brings at least 1 MiB too much, and these bytes' proportional share of the
reading time is 10% of the step.

## Why it matters

fsspec reads ahead: 5 MiB after every position that is requested, unless the script says otherwise. Where samples are
small and lie anywhere in a large file, nearly all of that is useless. It costs time, network bandwidth that others use
too, and often money. Measured for 16 KiB anywhere in a file of 256 MiB, from a server on the same machine (`Range`
requests of HTTP, both on one core, median of n=5 times 100 samples): 2.8 ms each (2.5 to 2.9) with blocks of 5 MiB,
0.15 ms (0.14 to 0.22) with `cache_type="none"`.

## What to do

Open files with `cache_type="none"` and read what a sample needs in one piece, or with `block_size=` near the size of a
sample; request many samples at once (`fs.cat_ranges`); or store samples in the order in which they are read, and
shuffle by shards and a buffer.

## When it is wrong

The bound assumes that time is proportional to bytes. Each request also has a fixed delay, which remains: where that is
most of the time, more concurrent requests (IN012) give more. A cache that is larger than the file serves later passes
from memory.
"""

from dataclasses import replace

from flatout.rules.core.bounds import speedup_of_input
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.loader_facts import fraction_of_batch, training_loader
from flatout.rules.facts.sample_stacks import sample_lines
from flatout.rules.facts.user_lines import hottest
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import LoaderFacts, RemoteReads, Run
from flatout.units import format_bytes, format_share

MIN_SHARE = 0.10
MIN_UNUSED = 0.5  # of what comes
MIN_UNUSED_BYTES = 2**20  # a request: 10 ms at 100 MB/s; less is small against the request's own delay


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN018: a tenth of the step waits for bytes from the network that nobody reads."""
    loader = training_loader(run)
    remote = loader.remote if loader is not None else None
    if loader is None or remote is None or remote.fetched_bytes <= 0 or remote.requests <= 0:
        return None
    unused = 1 - min(1.0, remote.used_bytes / remote.fetched_bytes)
    fraction = fraction_of_batch(loader, remote.seconds * unused)
    share = breakdown.share(Phase.INPUT) * fraction
    too_much = unused * remote.fetched_bytes / remote.requests
    if unused < MIN_UNUSED or too_much < MIN_UNUSED_BYTES or share < MIN_SHARE:
        return None
    lines = sample_lines(run, loader)
    spot = hottest(lines, among=lines)
    where = f" in {within(spot)}" if spot else ""
    return Finding(
        code="IN018",
        name="remote-reads-unused",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_of_input(run, breakdown, loader, fraction, headroom),
        location=spot.place if spot else loader.created_at,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent fetching bytes over the network that are "
        f"not read{where}: {format_share(unused)} of {format_bytes(remote.fetched_bytes)} a batch, in "
        f'{remote.requests:.3g} requests. Open files with `cache_type="none"` or smaller blocks.',
        evidence=(
            Evidence("asked for, a batch", remote.fetched_bytes / 1e6, "MB"),
            Evidence("read, a batch", remote.used_bytes / 1e6, "MB"),
            Evidence("requests, a batch", remote.requests, ""),
            Evidence("in them", remote.seconds * 1000, "ms"),
            Evidence("batches measured", loader.fetches, ""),
        ),
        fixes=("compiled-input", "loader-workers"),
    )


_AHEAD = RemoteReads(requests=16, fetched_bytes=16 * 5.25e6, used_bytes=16 * 16e3, seconds=0.6)
_LOADER = LoaderFacts(is_training=True, batch_size=16, sample_s=0.64, collate_s=0.001, fetches=40, remote=_AHEAD)
_LINES = (line(3.0, ("data.py", 22, "Remote.__getitem__"), stage="sample", leaf="fsspec", leaf_function="read"),)


def _with(**changes: float) -> LoaderFacts:
    return replace(_LOADER, remote=replace(_AHEAD, **changes))


RULE = Rule(
    code="IN018",
    name="remote-reads-unused",
    check=check,
    subsumes=("slow-sample-line",),
    fires_on=(
        example(step_ms=700, input=640, forward=40, loaders=(_LOADER,), lines=_LINES),
        example(step_ms=360, input=320, forward=30, loaders=(replace(_LOADER, num_workers=2),)),
    ),
    quiet_on=(
        example(step_ms=700, input=640, forward=40, loaders=(replace(_LOADER, remote=None),), lines=_LINES),
        example(step_ms=700, input=640, forward=40, loaders=(_with(used_bytes=60e6),), lines=_LINES),
        example(step_ms=700, input=640, forward=40, loaders=(_with(fetched_bytes=3e6),), lines=_LINES),
        example(step_ms=700, input=640, forward=40, loaders=(_with(seconds=0.03),), lines=_LINES),
        example(step_ms=700, input=640, forward=40, loaders=(_with(used_bytes=200e6),), lines=_LINES),
        example(step_ms=700, input=50, forward=600, loaders=(_LOADER,), lines=_LINES),
    ),
)
